"""What a rule is: data that says what to change, and a function from one structure to the next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from aicf.rewrite.draft import Draft

_RULES: dict[str, type[Rule]] = {}


@dataclass(frozen=True)
class Rule(ABC):
    """A rewrite as data. ``preserves`` says whether the network computes the same function afterwards; it is checked by value."""

    preserves: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        _RULES[cls.__name__] = cls

    @abstractmethod
    def change(self, draft: Draft) -> Rule | None:
        """Make the change in a draft; returns the rule that takes it back, None where nothing does.

        Raises :class:`~aicf.errors.RewriteError` with the reason where the change cannot be made; the draft is thrown away then.
        """

    def to_data(self) -> dict[str, Any]:
        """Return the rule as a value of JSON."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        return {"rule": type(self).__name__} | {key: list(value) if isinstance(value, tuple) else value for key, value in own.items()}


def read_rule(data: Mapping[str, Any]) -> Rule:
    """Return the rule that :meth:`Rule.to_data` wrote; raises ValueError for a rule that does not exist."""
    rest = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items() if key != "rule"}
    kind = _RULES.get(str(data.get("rule")))
    if kind is None:
        raise ValueError(f"there is no rule {data.get('rule')!r}; there are: {', '.join(sorted(_RULES))}")
    return kind(**rest)
