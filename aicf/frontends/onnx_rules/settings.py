"""What a rule sees of a node, and the table that rules are in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aicf.frontends.network import Refusal


@dataclass(frozen=True)
class Settings:
    """A node: attributes by name, the version of the operator set, how many inputs it names, and which outputs somebody reads."""

    attrs: Mapping[str, Any]
    version: int
    num_inputs: int
    reads: tuple[bool, ...]

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute."""
        return self.attrs.get(name, default)

    def require(self, name: str, *served: Any) -> None:
        """Raise :class:`Refusal` where an attribute is there and is none of the values that are served."""
        if name in self.attrs and self.attrs[name] not in served:
            raise Refusal(f"{name} = {self.attrs[name]!r} is not supported; supported: {' or '.join(map(repr, served))}")

    def refuse_outputs(self, first: int) -> None:
        """Raise :class:`Refusal` where somebody reads an output from that one on."""
        if any(self.reads[first:]):
            raise Refusal(f"output {self.reads.index(True, first)} is not supported")


# Made once per node, from its settings; called with tensors, and arrays of the host for inputs in ``hosts``.
Function = Callable[..., Any]
Make = Callable[[Settings], Function]


@dataclass(frozen=True)
class Rule:
    """How an operator becomes a function; ``hosts`` are the inputs that are numbers of the host: shapes, axes.

    A function that ``trains`` is told by the keyword ``training`` whether the module is in training mode.
    """

    make: Make
    hosts: tuple[int, ...] = ()
    trains: bool = False


RULES: dict[str, Rule] = {}


def rule(*operators: str, hosts: tuple[int, ...] = (), trains: bool = False) -> Callable[[Make], Make]:
    """Enter a function into the table."""

    def enter(make: Make) -> Make:
        for operator in operators:
            RULES[operator] = Rule(make, hosts, trains)
        return make

    return enter


def plain(operator: str, function: Function, hosts: tuple[int, ...] = ()) -> None:
    """Enter an operator without settings."""
    RULES[operator] = Rule(lambda node: function, hosts)
