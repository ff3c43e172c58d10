"""The table of PyTorch's operators: functions with PyTorch's signatures, by the name that ATen, methods and ``torch`` have in common.

Where ``torch.nn.functional`` orders arguments otherwise, a name has its own entry under ``functional.``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aicf.frontends.network import Ref, Refusal

Function = Callable[..., Any]


@dataclass(frozen=True)
class Rule:
    """A function, and the values that some of its parameters may have; ``is_view``: its result may share the first argument's memory."""

    function: Function
    served: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    is_view: bool = False

    def check(self, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
        """Raise :class:`Refusal` for arguments that the function does not take, or values that are not served."""
        try:
            bound = inspect.signature(self.function).bind(*arguments, **keywords)
        except TypeError as error:
            raise Refusal(f"called with unsupported arguments: {error}") from None
        for name, values in self.served.items():
            given = bound.arguments.get(name, values[0])
            if not isinstance(given, Ref) and given not in values:
                raise Refusal(f"{name} = {given!r} is not supported; supported: {' or '.join(map(repr, values))}")


RULES: dict[str, Rule] = {}


def rule(*names: str, is_view: bool = False, **served: tuple[Any, ...]) -> Callable[[Function], Function]:
    """Enter a function into the table under names, with the values that parameters may have."""

    def enter(function: Function) -> Function:
        for name in names:
            RULES[name] = Rule(function, served, is_view)
        return function

    return enter
