"""Large problems: part of the outputs is judged, and on the emulated device only a few blocks of a launch are run.

Running a bench problem whole on the emulated device would take minutes to hours. So the first block, the last one and some drawn between
them are run once with nothing in memory, to see which elements they write; then inputs are put where those elements need them
(:class:`harness.spec.Sampling` knows), the blocks run again, and what they write is compared with the reference. Memory is touched only
where it is needed, so that problems of many GiB cost no more than others.

Nothing is judged, and that is said, where blocks that were left out may have had a part in the result: launches of several kernels,
atomics on global memory, reads of a workspace that no block that ran has written. On a GPU the launch is whole.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from device.interface import Device, DeviceError, Graph, Stream
from device.observer import Report
from harness.spec import Launchable, Op, Problem, Role
from harness.verify.allocations import POISON_NAN, Layout
from harness.verify.case import Case
from harness.verify.compare import compare
from harness.verify.feasibility import (
    MAX_INSTRUCTIONS,
    NUM_BLOCKS,
    NotJudgedError,
    require_few_bytes,
    require_memory,
    require_short_launch,
    require_small_share,
)
from harness.verify.findings import FaultKind, Tally, classify_report
from harness.verify.inputs import draw_tensor
from harness.verify.places import NO_PLACES, Places, Restriction, find_in_grid, find_indices, thin
from harness.verify.reference import compute_expected

CHECK = "sampled"
_MAX_LOCATING_INSTRUCTIONS = 2_000_000
# Elements that are located.
_MAX_ELEMS = 1 << 20


@dataclass(frozen=True)
class _Written:
    """Elements of an output that were written: an index array per axis (of some, where there are many), and how many there are.

    They are those of ``runs`` of bytes, [begin, end) offsets.
    """

    runs: NDArray[np.int64]
    indices: tuple[NDArray[np.intp], ...]
    num_elems: int


@dataclass(frozen=True)
class SampledRun:
    """One variant on one large problem; what is wrong goes into ``tally``."""

    device: Device
    op: Op
    problem: Problem
    launchable: Launchable
    tally: Tally
    stream: Stream
    seed: int = 1

    @property
    def _restriction(self) -> Restriction:
        return Restriction(self.op, self.problem, self.seed)

    def run(self) -> None:
        """Judge the variant. Raises :class:`NotJudgedError` when nothing can be said, and what a launch raises."""
        if self.op.sampling is None:
            raise NotJudgedError("op.py declares no sampling, so its reference can only be computed whole")
        if not self._restriction.has_places:
            raise NotJudgedError(NO_PLACES)
        require_memory(self.device, self.op, self.problem)
        if self.device.observer is None:
            if obstacle := self._restriction.find_obstacle():
                raise NotJudgedError(obstacle)
            require_short_launch(self.device, self.op, self.problem, self.launchable, self.stream)
        try:
            case = Case(self.device, self.op, self.problem, Layout.EXACT)
        except DeviceError as error:
            raise NotJudgedError(f"its tensors do not fit the device's memory: {error}") from error
        with case:
            case.prepare(self.launchable)
            graph = self._capture(case)
            is_partial = self.device.observer is not None and any(math.prod(n.grid) > NUM_BLOCKS for n in graph.kernel_nodes)
            if is_partial and len(graph.kernel_nodes) > 1:
                raise NotJudgedError(f"its {len(graph.kernel_nodes)} kernels depend on each other's blocks, of which only some would run")
            if is_partial:
                require_small_share(self.op, self.problem, max(math.prod(n.grid) for n in graph.kernel_nodes))
                self._launch(case, _MAX_LOCATING_INSTRUCTIONS)
                self._judge_partial(case)
            else:
                if self.device.observer is not None:
                    require_few_bytes(self.op, self.problem)
                self._judge_places(case, {})

    def _judge_places(self, case: Case, before: Mapping[str, _Written]) -> None:
        """Launch on inputs that some places of the outputs need, and judge those; ``before`` is what blocks write where only some run."""
        places = self._restriction.choose_places({n: w.indices for n, w in before.items()})
        restricted, problem = self._upload(case, places)
        self._launch(case, MAX_INSTRUCTIONS)
        self._judge(case, places, restricted, problem, before or None)

    def _judge_partial(self, case: Case) -> None:
        """Judge by the blocks that ran, which showed where they write; their faults are the variant's if no other block has a part in them.

        That is looked into only where there are faults: what those blocks leave right is right, and counting is slow.
        """
        trial = replace(self, tally=Tally())
        error: RuntimeError | NotJudgedError | None = None
        try:
            trial._judge_places(case, trial._find_written(case))
        except (RuntimeError, NotJudgedError) as raised:
            error = raised
        if isinstance(error, RuntimeError) or trial.tally.faults:
            self._require_independent(case)
        self.tally.absorb(trial.tally)
        if error is not None:
            raise error

    def _require_independent(self, case: Case) -> None:
        """Raise :class:`NotJudgedError` where the blocks use atomics on global memory."""
        observer = self.device.observer
        assert observer is not None
        observer.clear_error()
        observer.take_counters()
        # What goes wrong this time went wrong before.
        with contextlib.suppress(RuntimeError, NotJudgedError):
            replace(self, tally=Tally())._launch(case, MAX_INSTRUCTIONS, counters=True)
        if any(c.counts.get("global_atomics", 0) or c.counts.get("bulk_reduce_bytes", 0) for c in observer.take_counters()):
            raise NotJudgedError("its blocks use atomics on global memory, by which those that run may depend on those that do not")

    def _capture(self, case: Case) -> Graph:
        with self.device.capture(self.stream) as graphs:
            case.launch(self.launchable, self.stream)
        return graphs[0]

    # ---------------------------------------------------------------------------------------------------------- launch

    def _launch(self, case: Case, limit: int, *, counters: bool = False) -> None:
        """Launch, whole on a GPU and by sampled blocks on the emulated device, where they may take ``limit`` warp instructions."""
        observer = self.device.observer
        self.tally.num_launches += 1
        if observer is None:
            self._run(case)
            return
        options = {
            "sample_blocks": str(NUM_BLOCKS),
            "sample_seed": str(self._restriction.make_draws("blocks").integers(1, 2**31)),
            "instruction_limit": str(limit),
            "read_only": ",".join(map(str, case.input_addresses)),
        }
        observer.take_reports()
        with observer.use_options(options), observer.observe(("memcheck",), counters=counters):
            try:
                self._run(case)
            finally:
                self._note_reports(observer.take_reports(), limit)

    def _run(self, case: Case) -> None:
        case.launch(self.launchable, self.stream)
        self.stream.synchronize()

    def _note_reports(self, reports: Sequence[Report], limit: int) -> None:
        if any(r.kind == "instruction_limit" for r in reports):
            observer = self.device.observer
            assert observer is not None
            observer.clear_error()
            raise NotJudgedError(f"{NUM_BLOCKS} of its blocks take more than {limit / 1e6:.0f} million warp instructions") from None
        for report in reports:
            if report.severity == "error":
                self.tally.add(classify_report(report), CHECK, report.text)

    # --------------------------------------------------------------------------------------------------------- written

    def _find_written(self, case: Case, before: Mapping[str, _Written] | None = None) -> dict[str, _Written]:
        """Return what was written of each output since the case was made; mostly it is what was written ``before``."""
        found = {tensor.name: self._locate(case, tensor.name, (before or {}).get(tensor.name)) for tensor in self._restriction.outputs}
        if all(w.num_elems == 0 for w in found.values()):
            self.tally.add(FaultKind.NOT_WRITTEN, CHECK, f"{NUM_BLOCKS} blocks ran, the first and the last among them, and wrote no output")
        return found

    def _locate(self, case: Case, name: str, before: _Written | None) -> _Written:
        observer = self.device.observer
        assert observer is not None
        array = case.arguments[name]
        item = array.dtype.itemsize
        written = np.array(observer.find_written(array.address, array.span_bytes), np.int64).reshape(-1, 2)
        if before is not None and np.array_equal(written, before.runs):
            return before
        count = int((written[:, 1] - written[:, 0]).sum()) // item
        runs = thin(written, _MAX_ELEMS * item)
        starts, lengths = runs[:, 0] // item, -(-(runs[:, 1] - runs[:, 0]) // item)
        rest = np.repeat(starts - np.cumsum(lengths) + lengths, lengths) + np.arange(int(lengths.sum()))
        indices, beside = find_indices(rest, array.shape, [stride // item for stride in array.strides_bytes])
        if beside.any():
            place = [int(i[np.argmax(beside)]) for i in indices]
            self.tally.add(
                FaultKind.GUARD_OVERWRITTEN, CHECK, f"{int(beside.sum())} elements in the row padding of {name}, first at {place}"
            )
            indices = [i[~beside] for i in indices]
        return _Written(written, tuple(indices), count)

    # ---------------------------------------------------------------------------------------------------------- upload

    def _upload(self, case: Case, places: Places) -> tuple[dict[str, NDArray[Any]], Problem]:
        """Put inputs where the outputs at ``places`` need them; return those inputs alone, and their problem."""
        needed, problem = self._restriction.find_needed(places)
        if self.device.observer is None:
            case.fill_outputs(POISON_NAN)
        # What a restriction adds for the reference alone (the numbers of the rows that are left, say) goes along.
        inputs = {name: values for name, values in self._restriction.restrict({}, places, dry=True)[0].items() if name not in needed}
        for tensor in self.op.inputs:
            if tensor.name not in needed:
                continue
            axes = needed[tensor.name]
            values = draw_tensor(self.op, self.problem, tensor, tuple(map(len, axes)), seed=self.seed)
            inputs[tensor.name] = values
            case.write_grid(tensor.name, axes, values)
        return inputs, problem

    # ----------------------------------------------------------------------------------------------------------- judge

    def _judge(
        self,
        case: Case,
        places: Places,
        inputs: dict[str, NDArray[Any]],
        problem: Problem,
        before: Mapping[str, _Written] | None,
    ) -> None:
        """Compare what was written; ``before`` is what a first launch wrote, where only some blocks were run."""
        self.tally.note_check(CHECK)
        (part,) = compute_expected(self.op, problem, inputs, math.inf).parts
        written = self._find_written(case, before) if self.device.observer is not None else {}
        for tensor in self._restriction.outputs:
            taken = {self._restriction.find_axis(tensor.name, axis): chosen for axis, chosen in places.items()}
            grid = [taken[axis] if axis in taken else np.arange(n) for axis, n in enumerate(tensor.resolve_shape(self.problem))]
            actual = case.read_grid(tensor.name, grid)
            known = np.ones(actual.shape, np.bool_)
            if not grid:  # one value, which all blocks may have a part in
                known = np.full((), before is None)
            elif before is not None and tensor.role is Role.INOUT:
                # The host has written it as well since then.
                known = find_in_grid(before[tensor.name].indices, grid)
            elif tensor.name in written:
                known = find_in_grid(written[tensor.name].indices, grid)
                wanted = math.prod(tensor.resolve_shape(self.problem))
                if before is None and written[tensor.name].num_elems < wanted:
                    detail = f"{wanted - written[tensor.name].num_elems} of {wanted} elements of {tensor.name} were not written"
                    self.tally.add(FaultKind.NOT_WRITTEN, CHECK, detail)
            self._compare(tensor.name, grid, actual, part.outputs[tensor.name], part.bounds[tensor.name], known)

    def _compare(
        self,
        name: str,
        grid: Sequence[NDArray[np.intp]],
        actual: NDArray[Any],
        expected: NDArray[np.float64],
        bound: NDArray[np.float64],
        known: NDArray[np.bool_],
    ) -> None:
        if not known.any():
            return
        result = compare(actual[known], expected[known], np.broadcast_to(bound, expected.shape)[known])
        self.tally.note_comparison(result)
        if result.ok:
            return
        assert result.first_bad_index is not None
        index = np.argwhere(known)[result.first_bad_index[0]]
        where = [int(axis[i]) for axis, i in zip(grid, index, strict=True)]
        kind = FaultKind.NAN if result.num_nan == result.num_mismatched else FaultKind.MISMATCH
        detail = (
            f"{name}: {result.num_mismatched} of {result.num_elems} sampled elements wrong; first at {where}: got {result.actual!r}, "
            f"expected {result.expected!r}, error {abs(result.actual - result.expected):.3g} where {result.bound:.3g} is allowed"
        )
        self.tally.add(kind, CHECK, detail)
