"""How a network is trained: freeze and thaw parameters, other batches, another rate. What it computes stays as it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from aicf.errors import RewriteError
from aicf.optim.schedules import Schedule
from aicf.rewrite.draft import Draft, Rest
from aicf.rewrite.rules.rule import Rule


def list_parameters(draft: Draft, owner: str) -> list[str]:
    """Return the paths of a module's parameters, or of one; raises :class:`~aicf.errors.RewriteError` where there is none."""
    found = [path for path in draft.parameters if path == owner or path.startswith(f"{owner}.") or not owner]
    if not found:
        raise RewriteError(f"{owner}: there is no such module or parameter; there are parameters {', '.join(draft.parameters) or 'none'}")
    return found


@dataclass(frozen=True)
class Freeze(Rule):
    """No longer train a module's parameters, or one. Their optimizer state is kept for :class:`Thaw`."""

    preserves: ClassVar[bool] = True
    owner: str

    def change(self, draft: Draft) -> Rule:
        """Take the parameters out of the optimizer."""
        for path in list_parameters(draft, self.owner):
            if path in draft.resting:
                raise RewriteError(f"{path}: is frozen already")
            draft.resting[path] = Rest(*draft.stop_training(path))
        return Thaw(self.owner)


@dataclass(frozen=True)
class Thaw(Rule):
    """Train frozen parameters again, with the optimizer state that they had."""

    preserves: ClassVar[bool] = True
    owner: str

    def change(self, draft: Draft) -> Rule:
        """Give the parameters back to the optimizer."""
        for path in list_parameters(draft, self.owner):
            if path not in draft.resting:
                raise RewriteError(f"{path}: is not frozen")
            rest = draft.resting.pop(path)
            draft.train(path, rest.group, rest.state)
        return Freeze(self.owner)


@dataclass(frozen=True)
class SetBatch(Rule):
    """Train on batches of another number of rows. A :class:`~aicf.data.DataLoader` that a run reads gives as many from then on."""

    preserves: ClassVar[bool] = True
    rows: int

    def change(self, draft: Draft) -> Rule:
        """Change the number of rows."""
        if draft.batch < 1:
            raise RewriteError("the step's first input has no rows, so their number cannot be changed")
        if self.rows < 1 or self.rows == draft.batch:
            raise RewriteError(f"rows={self.rows}: must be at least 1, and another number than the present {draft.batch}")
        before, draft.batch = draft.batch, self.rows
        return SetBatch(before)


@dataclass(frozen=True)
class ScaleRate(Rule):
    """Multiply the learning rate, or what its schedule says, by a factor."""

    preserves: ClassVar[bool] = True
    factor: float

    def change(self, draft: Draft) -> Rule:
        """Change the rate of each group."""
        if not 0.0 < self.factor < float("inf"):
            raise RewriteError(f"factor={self.factor}: must be positive and finite")
        draft.optimizer.groups = [replace(group, lr=self._scale(group.lr)) for group in draft.optimizer.groups]
        return ScaleRate(1.0 / self.factor)

    def _scale(self, rate: float | Schedule) -> float | Schedule:
        if not isinstance(rate, Schedule):
            return rate * self.factor
        return Schedule(f"{self.factor} * {rate.name}", lambda steps_done: rate(steps_done) * self.factor)
