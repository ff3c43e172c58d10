"""A training run whose network can be rewritten between two steps, with all state carried over."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aicf.data import DataLoader, repeat
from aicf.errors import RewriteError, StateError
from aicf.ir.graph import PARAMETER
from aicf.nn import Module
from aicf.optim import Optimizer
from aicf.rewrite.checking import check
from aicf.rewrite.copying import copy_model
from aicf.rewrite.decisions import Judge, Policy, decide
from aicf.rewrite.log import REWRITE, ROLLBACK, Log, Observation, Refused, Rewritten, RolledBack, Shapes
from aicf.rewrite.preparing import prebuild, prepare, without_collections
from aicf.rewrite.records import RewriteRecord
from aicf.rewrite.rules import Rule, read_rule
from aicf.rewrite.snapshots import Saved, Snapshot
from aicf.rewrite.structure import Frame, Structure
from aicf.rewrite.verbs import Verbs
from aicf.rewrite.warned import Warned, tell_once
from aicf.rewrite.windows import Window
from aicf.train.program import Step
from contract.building import list_compiled, without_compiler


class Run(Verbs):
    """A training step that is rewritten while it trains.

    ``step`` is what :func:`aicf.compile_step` returned; the run takes it over. A rewrite makes a new step, model and optimizer
    (:attr:`step`, :attr:`model`, :attr:`optimizer`); those before raise when they are used. ``records`` are the rewrites so far, and
    ``snapshots`` those that were given a name, which are kept until ``del run.snapshots[name]``.

    With a ``policy``, or where ``every`` is given, the step is compiled again with observers, and :meth:`fit` adds what they see to
    :attr:`log` at the end of each window of ``every`` steps (100 by default). The policy is asked there; rewrites that it proposes are
    judged by ``judge``, and rolled back where that says so. Without a judge they stay.

    A rewrite is made of kernels that are in the cache, with chains in parts where a fused one is not. Where even these are not, it compiles
    them, says so in the log of ``aicf.rewrite`` and in its record; with ``compiles`` False it is refused. :meth:`prebuild` compiles ahead.
    The same warning about the same kernels is told once per run; ``warned`` counts them.
    """

    def __init__(
        self, step: Step, policy: Policy | None = None, *, every: int | None = None, judge: Judge | None = None, compiles: bool = True
    ) -> None:
        if every is not None and every < 1:
            raise ValueError(f"every={every}: must be at least 1 step")
        self.warned = Warned()
        self._structure = Structure.of(step, every or (None if policy is None else 100))
        self._loader: Any = None
        self._count = 0
        self.policy, self.judge, self.compiles = policy, judge, compiles
        self.steps_done = int(self.optimizer.steps_done.item())
        self.records: list[RewriteRecord] = []
        self.snapshots: dict[str, Snapshot] = {}
        self.log = Log()
        self._trial: Snapshot | None = None
        self._window = Window()
        self._note_shapes()

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

    @tell_once
    def apply(self, rule: Rule, evidence: Mapping[str, Any] | None = None) -> RewriteRecord:
        """Rewrite the network, and return what was done.

        Raises :class:`~aicf.errors.RewriteError` with the reason where the rule cannot be applied, or does not preserve the function though
        it says so; nothing has changed then.
        """
        started = time.perf_counter()
        self._read()
        before, compiled = self._structure, len(list_compiled())
        with without_collections():
            draft = before.start()
            with without_compiler():
                undo = rule.change(draft)
                nodes = draft.finish()
                delta, scale = check(rule, before, draft)
            prepared = prepare(rule, before, draft, compiles=self.compiles)
            self._structure = before.exchange(prepared, draft.resting)
        if draft.batch != before.batch and isinstance(self._loader, DataLoader):
            # Rows that were seen in this epoch are not seen again, but for less than a batch of them.
            self._loader.position = self._loader.position * self._loader.batch // draft.batch
            self._loader.batch = draft.batch
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
            list_compiled()[compiled:],
            prepared.is_unfused,
        )
        self.records.append(record)
        self.log.add(Rewritten(self.steps_done, record.rule, record.preserves, delta, scale, record.seconds))
        self._note_shapes()
        self._window = Window()
        return record

    @tell_once
    def preview(self, rule: Rule) -> Module:
        """Return the model that a rule would make, a copy in host memory; raises :class:`RewriteError` as :meth:`apply` does."""
        draft = self._structure.start()
        rule.change(draft)
        draft.finish()
        return copy_model(draft.model)[0]

    @tell_once
    def prebuild(self, *rules: Rule) -> tuple[str, ...]:
        """Compile what rewrites by these rules need, each made of the present structure; returns the kernels that were not in the cache.

        With observers, those of the step that closes a window are among them. Nothing is changed. Raises :class:`RewriteError` as
        :meth:`apply` does.
        """
        return prebuild(self._structure, rules)

    def _note_shapes(self) -> None:
        plan = self.step.plan
        shapes = {s.owner: s.slot.type.shape for s in plan.states if s.role == PARAMETER}
        self.log.add(Shapes(self.steps_done, shapes, sum(plan.sizes.values())))

    # ---- moments

    def snapshot(self, name: str | None = None, *, on_host: bool = False, replaces: Snapshot | None = None) -> Snapshot:
        """Return the run as it is now: structure, all state, and the place of the loader that :meth:`fit` reads.

        State is kept where the step runs: on ``cuda`` in device memory, with ``on_host`` in host memory. One with a name is kept in
        :attr:`snapshots`, in the place of an earlier one of that name; one without lives as long as the program keeps it. With
        ``replaces`` an older snapshot is given up, whose use raises then, and its device memory is taken where it has the same size:
        allocating takes longer than the copy.
        """
        made = self._take(name, on_host=on_host, replaces=replaces)
        if name is not None:
            self.snapshots[name] = made
        return made

    def _take(self, name: str | None, *, on_host: bool = False, replaces: Snapshot | None = None) -> Snapshot:
        """Return the run as it is now, kept by nobody."""
        self._read()
        self._count += 1
        place = self._loader.state_dict() if hasattr(self._loader, "state_dict") else None
        batch = self._loader.batch if isinstance(self._loader, DataLoader) else None
        frame = Frame.of(self._structure, on_host=on_host, replaces=None if replaces is None else replaces.frame)
        log = Log(self.log)
        return Snapshot(
            name or f"snapshot {self._count}", self.steps_done, frame, place, tuple(self.records), log, batch, self._window.done
        )

    @tell_once
    def resume(self, path: Path | str, loader: Any = None) -> None:
        """Go on from a file that :meth:`Snapshot.save` wrote, with a run of the step that it began with, and ``loader`` at its place.

        The rewrites are made again, then all state is overwritten. Raises :class:`~aicf.errors.StateError` for a file that cannot be
        read or is of another run, and nothing is changed then.
        """
        saved = Saved.read(path)
        try:
            structure = self._structure.rebuild([read_rule(record.rule) for record in saved.records], saved.resting, saved.states)
        except (RewriteError, ValueError) as error:
            raise StateError(f"{path}: is a snapshot of a run that began with another step: {error}") from error
        if structure is not self._structure:
            self._structure.retire("the run was resumed; go on with run.step and run.model")
        self._structure = structure
        self.steps_done, self.records, self.log, self._loader = saved.steps_done, list(saved.records), saved.log, loader
        self._put_loader(saved.loader, saved.batch)
        self._trial = None
        self._window = Window(saved.in_window)

    def _put_loader(self, place: Mapping[str, Any] | None, batch: int | None) -> None:
        if isinstance(self._loader, DataLoader) and batch is not None:
            self._loader.batch = batch
        if place is not None and hasattr(self._loader, "load_state_dict"):
            self._loader.load_state_dict(place)

    def rollback(self, snapshot: Snapshot | str) -> None:
        """Go back to a snapshot, or to one of :attr:`snapshots` by name, bit for bit; the loader of the last :meth:`fit` goes to its place.

        Raises :class:`~aicf.errors.StateError` for a name that none has.
        """
        if isinstance(snapshot, str):
            if snapshot not in self.snapshots:
                raise StateError(f"there is no snapshot {snapshot!r}; there are: {', '.join(self.snapshots) or 'none with a name'}")
            snapshot = self.snapshots[snapshot]
        self._read()
        frame = snapshot.frame
        if frame.is_of(self._structure):
            frame.write_to(self._structure)
        else:
            restored = frame.restore()
            self._structure.retire("the run was rolled back; go on with run.step and run.model")
            self._structure = restored
        self.log.add(RolledBack(self.steps_done, snapshot.steps_done, snapshot.name))
        self.steps_done = snapshot.steps_done
        self.records = list(snapshot.records)
        self._put_loader(snapshot.loader, snapshot.batch)
        self._trial = None
        self._note_shapes()
        self._window = Window(snapshot.in_window)

    def fork(self) -> Run:
        """Return a second run with a copy of all state, which goes its own way."""
        self._read()
        twin = Run.__new__(Run)
        twin.warned = Warned()
        twin._structure = Frame.of(self._structure).restore(is_fork=True)
        twin._loader, twin._count, twin.steps_done, twin.records, twin.snapshots = None, 0, self.steps_done, list(self.records), {}
        twin.policy, twin.judge, twin.compiles, twin.log, twin._trial = self.policy, self.judge, self.compiles, Log(self.log), None
        twin._window = Window(self._window.done)
        return twin

    # ---- training

    @tell_once
    def fit(self, loader: Iterable[Sequence[Any]], steps: int) -> list[float]:
        """Train for ``steps`` more steps, those that are rolled back included; returns their losses.

        With observers losses are read at the end of a window, and no step between waits for them; without a policy, which would have to
        decide there, not even the first step of the next window does.
        """
        self._loader = loader
        if self._structure.watch is None:
            losses = []
            for batch in repeat(loader, steps):
                losses.append(float(self.step(*batch).item()))
                self.steps_done += 1
            return losses
        begin, left = len(self.log), steps
        while left > 0:
            for batch in repeat(loader, left):
                left -= 1
                if self._advance(batch):
                    break  # the loader is at another place
        self._read()
        self._window.stop_clock()
        return [entry.loss for entry in self.log.entries[begin:] if isinstance(entry, Observation)]

    def _advance(self, batch: Sequence[Any]) -> bool:
        """Train on a batch; at the end of a window, decide. Returns whether the run was rolled back."""
        structure = self._structure
        assert structure.watch is not None
        window = self._window
        if not window.is_timed:
            _ = structure.close_step  # compiled before
            window.start_clock()
        is_last = window.done + 1 >= structure.watch.every
        if is_last:
            structure.run_closely(batch)
        else:
            structure.step.run(batch)
        window.count()
        self.steps_done += 1
        window.settle(self.log)  # the window before, while the device computes this step
        if is_last:
            window.close(structure.watch, structure.step, self.steps_done)
        if not is_last or self.policy is None:  # nobody decides
            return False
        window.settle(self.log)
        return self._decide()

    def _read(self) -> None:
        """Add the steps that were not read yet to the log."""
        self._window.read(self.log, self._structure.watch, self._structure.step, self.steps_done)

    def _decide(self) -> bool:
        """Do what policy and judge say; returns whether the run was rolled back."""
        if self.policy is None:
            return False
        decisions = decide(self.log, self.policy, self.judge)
        if self.judge is not None and any(d.action == REWRITE for d in decisions):
            self._trial = self._take("before a trial")
        for decision in decisions:
            self.log.add(decision)
            if decision.action == ROLLBACK and self._trial is not None:
                self.rollback(self._trial)
                return True
            rule = decision.rule or {}
            if decision.action == ROLLBACK:
                self.log.add(Refused(self.steps_done, rule, "the snapshot from before is gone: the run was resumed, or is a fork"))
            elif decision.action == REWRITE:
                try:
                    self.apply(read_rule(rule), decision.evidence)
                except RewriteError as error:
                    self.log.add(Refused(self.steps_done, rule, str(error)))
        return False
