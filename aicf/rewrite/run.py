"""A training run whose network can be rewritten between two steps, with all state carried over."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from aicf.errors import RewriteError
from aicf.nn import Module
from aicf.optim import Optimizer
from aicf.rewrite.checking import compare, compute_rows, read_rows
from aicf.rewrite.draft import Draft
from aicf.rewrite.records import RewriteRecord
from aicf.rewrite.rules import Prune, Rule, Separate, Widen, read_rule
from aicf.rewrite.snapshots import Snapshot
from aicf.rewrite.structure import Frame, Structure
from aicf.train.compiled import Step


class Run:
    """A training step that is rewritten while it trains.

    ``step`` is what :func:`aicf.compile_step` returned; the run takes it over. A rewrite makes a new step, model and optimizer
    (:attr:`step`, :attr:`model`, :attr:`optimizer`); those before raise when they are used. ``records`` are the rewrites so far.
    """

    def __init__(self, step: Step) -> None:
        self._structure = Structure.of(step)
        self._loader: Any = None
        self._count = 0
        self.steps_done = int(self.optimizer.steps_done.item())
        self.records: list[RewriteRecord] = []

    @property
    def step(self) -> Step:
        """The present step."""
        return self._structure.step

    @property
    def model(self) -> Module:
        """The module of the present structure, whose parameters are the step's."""
        return self._structure.recipe.model

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer of the present structure."""
        return self._structure.recipe.optimizer

    # ---- rewriting

    def apply(self, rule: Rule, evidence: Mapping[str, Any] | None = None) -> RewriteRecord:
        """Rewrite the network, and return what was done.

        Raises :class:`~aicf.errors.RewriteError` with the reason where the rule cannot be applied, or does not preserve the function though
        it says so; nothing has changed then.
        """
        started = time.perf_counter()
        before = self._structure
        draft = before.start()
        undo = rule.change(draft)
        nodes = draft.finish()
        delta, scale = self._check(rule, draft)
        made, recipe = before.prepare(draft)
        self._structure = before.exchange(made, recipe, draft.resting)
        record = RewriteRecord(
            self.steps_done,
            rule.to_data(),
            nodes,
            tuple(draft.maps),
            rule.preserves,
            delta,
            scale,
            None if undo is None else undo.to_data(),
            dict(evidence or {}),
            time.perf_counter() - started,
        )
        self.records.append(record)
        return record

    def _check(self, rule: Rule, draft: Draft) -> tuple[float, float]:
        """Compare the functions before and after on a few rows; returns the largest difference and magnitude."""
        recipe, step = self._structure.recipe, self.step
        batch = read_rows(step.executor, step.plan)
        try:
            results = [compute_rows(model, recipe.loss, batch) for model in (recipe.model, draft.model)]
        except (TypeError, ValueError, LookupError, RuntimeError) as error:
            raise RewriteError(f"{rule}: the network cannot be evaluated after this change: {error}") from error
        delta, scale, bound = compare(*results)
        if rule.preserves and not delta <= bound:
            raise RewriteError(f"{rule}: changes the network's results by {delta:.3g} where rounding explains {bound:.3g}; it was not made")
        return delta, scale

    def widen(self, owner: str, to: int, *, seed: int = 0) -> RewriteRecord:
        """Have ``to`` units in the place of those that ``owner`` makes (:class:`~aicf.rewrite.Widen`)."""
        return self.apply(Widen(owner, to, seed))

    def prune(self, owner: str, units: Iterable[int]) -> RewriteRecord:
        """Remove units by their numbers (:class:`~aicf.rewrite.Prune`)."""
        return self.apply(Prune(owner, tuple(int(i) for i in units)))

    def separate(self, owner: str, deviation: float = 0.1, *, seed: int = 0) -> RewriteRecord:
        """Make copies of units different from each other (:class:`~aicf.rewrite.Separate`)."""
        return self.apply(Separate(owner, deviation, seed))

    def undo(self, record: RewriteRecord) -> RewriteRecord:
        """Apply the rule that takes a rewrite back; raises :class:`~aicf.errors.RewriteError` where there is none."""
        if record.undo is None:
            raise RewriteError(f"{record.rule['rule']}: nothing takes it back; roll back to a snapshot from before it")
        return self.apply(read_rule(record.undo))

    # ---- moments

    def snapshot(self, name: str | None = None) -> Snapshot:
        """Return the run as it is now, in host memory: structure, all state, and the place of the loader that :meth:`fit` reads."""
        self._count += 1
        place = self._loader.state_dict() if hasattr(self._loader, "state_dict") else None
        return Snapshot(name or f"snapshot {self._count}", self.steps_done, Frame.of(self._structure), place, tuple(self.records))

    def rollback(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot, bit for bit, with the loader of the last :meth:`fit` put back to its place."""
        frame = snapshot.frame
        if frame.is_of(self._structure):
            frame.write_to(self._structure)
        else:
            restored = frame.restore()
            self._structure.retire("the run was rolled back; go on with run.step and run.model")
            self._structure = restored
        self.steps_done = snapshot.steps_done
        self.records = list(snapshot.records)
        if snapshot.loader is not None and hasattr(self._loader, "load_state_dict"):
            self._loader.load_state_dict(snapshot.loader)

    def fork(self) -> Run:
        """Return a second run with a copy of all state, which goes its own way."""
        twin = Run.__new__(Run)
        twin._structure = Frame.of(self._structure).restore(is_fork=True)
        twin._loader, twin._count, twin.steps_done, twin.records = None, 0, self.steps_done, list(self.records)
        return twin

    # ---- training

    def fit(self, loader: Iterable[Sequence[Any]], steps: int) -> list[float]:
        """Train for ``steps`` more steps; returns their losses."""
        self._loader = loader
        losses = []
        for batch in _repeat(loader, steps):
            losses.append(float(self.step(*batch).item()))
            self.steps_done += 1
        return losses


def _repeat(loader: Iterable[Sequence[Any]], count: int) -> Iterator[Sequence[Any]]:
    """Yield ``count`` batches, epoch after epoch; raises ValueError for a loader that has none."""
    left, empty = count, 0
    while left > 0:
        empty += 1
        if empty > 2:
            raise ValueError("the loader has no batch")
        for batch in loader:
            empty = 0
            yield batch
            left -= 1
            if left == 0:
                return
