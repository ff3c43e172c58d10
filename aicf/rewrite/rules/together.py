"""Several changes as one: compiled, compared and exchanged once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aicf.errors import RewriteError
from aicf.rewrite.draft import Draft
from aicf.rewrite.rules.rule import Rule, read_rule
from aicf.rewrite.rules.units import Prune, Regroup, Widen

_UNITS = (Widen, Prune, Regroup)


@dataclass(frozen=True)
class Together(Rule):
    """Widen, prune or regroup the units of several owners at once, none of which shares its units with another.

    It costs about what one of them does. ``rules`` may be given as data, as :meth:`Rule.to_data` writes them.
    """

    rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", tuple(read_rule(r) if isinstance(r, Mapping) else r for r in self.rules))

    @property
    def preserves(self) -> bool:  # type: ignore[override]  # it is for each of the rules to say
        """Whether all of the rules keep the function."""
        return all(rule.preserves for rule in self.rules)

    def change(self, draft: Draft) -> Rule | None:
        """Make the changes one by one, on the coupled dimensions of the structure before."""
        if not self.rules or not all(isinstance(rule, _UNITS) for rule in self.rules):
            kinds = ", ".join(type(rule).__name__ for rule in self.rules) or "none"
            raise RewriteError(f"Together takes Widen, Prune and Regroup, at least one; got {kinds}")
        undo: list[Rule | None] = []
        seen: set[tuple[str, int | None]] = set()
        for rule in self.rules:
            begin = len(draft.maps)
            undo.append(rule.change(draft))
            axes = {(m.owner, m.dim) for m in draft.maps[begin:]}
            if shared := sorted(axes & seen, key=str):
                raise RewriteError(
                    f"{rule}: shares its units along axis {shared[0][1]} of {shared[0][0]} with a rule before it; apply it alone"
                )
            seen |= axes
        back = [rule for rule in undo if rule is not None]
        return Together(tuple(reversed(back))) if len(back) == len(undo) else None

    def to_data(self) -> dict[str, Any]:
        """Return the rule as a value of JSON."""
        return {"rule": "Together", "rules": [rule.to_data() for rule in self.rules]}
