"""Large problems: part of the outputs is judged, and on the emulated device only a few blocks of a launch are run.

Running a bench problem whole on the emulated device would take minutes to hours. So the first block of each kernel, the last one and some
drawn between them are run once with nothing in memory, to see which elements they write; then inputs are put where those elements need
them (:class:`harness.spec.Sampling` knows), the blocks run again, and what they write is compared with the reference. Memory is touched
only where it is needed, so that problems of many GiB cost no more than others. Outputs that do not have the same axes (a gradient by rows
and one by columns) are judged one after the other.

Not judged is what blocks that were left out may have a part in. The emulated device tells (its option ``given``): what a warp writes after
it has read memory that no block wrote, or an atomic's result, and what atomics update. Where such outputs are left, or the op has no
sampling, a problem that is small enough is run and judged whole. On a GPU the launch is always whole.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from harness.spec import Indices, Op, Problem, Role, Tensor
from harness.verify.allocations import POISON_NAN
from harness.verify.case import Case
from harness.verify.differences import compare_places
from harness.verify.feasibility import (
    LEAST_TOLD_BYTES,
    MAX_INSTRUCTIONS,
    MAX_REPEATED_INSTRUCTIONS,
    MAX_WHOLE_INSTRUCTIONS,
    NUM_BLOCKS,
    NotJudgedError,
    TooLongError,
    is_affordable,
    require_few_bytes,
    require_few_filled,
    require_few_warps,
    require_memory,
    require_short_launch,
    require_small_share,
)
from harness.verify.findings import FaultKind
from harness.verify.inputs import REPEATED, draw_tensor
from harness.verify.places import NO_PLACES, Places, Restriction, find_in_grid, list_restrictions
from harness.verify.reference import Expected, References, compute_expected
from harness.verify.sampled_launch import DEPENDENT, SampledLaunch
from harness.verify.written import CHECK, Written, count_written, locate_written

_MAX_LOCATING_INSTRUCTIONS = 2_000_000
# Rows of inputs that are put in place for a few blocks.
_MOST_ROWS = 1 << 15
# Indices, of which all are drawn, repeat after so many, a prime number that no row has.
_INDEX_PERIOD = 1048573
_NO_SAMPLING = "op.py declares no sampling, and it is too large to be run whole"


_Kept = TypeVar("_Kept")


def _count_bytes(arrays: Mapping[str, NDArray[Any]]) -> int:
    return sum(array.nbytes for array in arrays.values())


@dataclass
class _Prepared:
    """Inputs for the outputs at some places: where on the device each goes, indices that go there whole, and what the reference takes."""

    needed: dict[str, list[NDArray[Any]]]
    indices: dict[str, NDArray[Any]]
    inputs: dict[str, NDArray[Any]]
    problem: Problem
    _expected: Expected | None = None

    @property
    def size_bytes(self) -> int:
        """Host memory held; what is expected of a few places is small beside it."""
        return _count_bytes(self.inputs) + _count_bytes(self.indices)

    def find_expected(self, op: Op) -> Expected:
        """Return what is expected of these inputs, computed once: a launch that tells nothing needs none."""
        if self._expected is None:
            self._expected = compute_expected(op, self.problem, self.inputs, math.inf, math.inf)
        return self._expected


@dataclass(frozen=True)
class SampledRun(SampledLaunch):
    """One variant on one large problem; what is wrong goes into ``tally``."""

    distribution: str = "normal"
    whole: bool = False
    references: References | None = None

    def run(self) -> None:
        """Judge the variant. Raises :class:`NotJudgedError` when nothing can be said, and what a launch raises."""
        require_memory(self.device, self.op, self.problem)
        # Whole problems say all that their parts do.
        if self.whole and is_affordable(self.op, self.problem, is_judged=True):
            with contextlib.suppress(NotJudgedError):
                return self._judge_whole(MAX_REPEATED_INSTRUCTIONS)
        outputs = {t.name for t in self.op.outputs if t.present(self.problem)}
        judged: set[str] = set()
        is_search = self.distribution != "normal"
        reason = NotJudgedError(NO_PLACES if self.op.sampling is not None else _NO_SAMPLING)
        if not is_search and list_restrictions(self.op, self.problem, self.seed):
            try:
                judged = self._judge_part()
            except TooLongError:
                raise
            except NotJudgedError as error:
                reason = error
        if judged == outputs or self.tally.faults:
            return None
        # What is left of it shows on smaller ones as well.
        if is_affordable(self.op, self.problem, is_judged=bool(judged), is_search=is_search):
            try:
                return self._judge_whole()
            except NotJudgedError as error:
                reason = error
        if not judged:
            raise reason
        return None

    # ------------------------------------------------------------------------------------------------------------ part

    def _judge_part(self) -> set[str]:
        """Judge the outputs by places; return the names of those that were."""
        restrictions = list_restrictions(self.op, self.problem, self.seed, self._draw_indices())
        observer = self.device.observer
        if observer is None:
            restrictions = self._select_judged(restrictions)
            require_short_launch(self.device, self.op, self.problem, self.launchable, self.stream)
        with self._open_case() as case:
            graph = self._capture(case)
            if observer is not None:
                require_few_filled(graph)
            if observer is not None and any(math.prod(n.grid) > NUM_BLOCKS for n in graph.kernel_nodes):
                require_small_share(self.op, self.problem, max(math.prod(n.grid) for n in graph.kernel_nodes))
                self._launch(case, _MAX_LOCATING_INSTRUCTIONS)
                return self._judge_blocks(case, restrictions, self._find_written(case))
            if observer is not None:
                require_few_bytes(self.op, self.problem)
                if self.op.cost(self.problem).bytes_moved > LEAST_TOLD_BYTES:
                    self._require_few_instructions(MAX_INSTRUCTIONS, TooLongError)
                if len(restrictions) > 1 and is_affordable(self.op, self.problem):
                    return set()  # all blocks are run: one comparison of all outputs does for several of some
                restrictions = self._select_judged(restrictions, _MOST_ROWS)
            for restriction in restrictions:
                self._judge_places(case, restriction, {})
        return {name for restriction in restrictions for name in restriction.names}

    def _select_judged(self, restrictions: Sequence[Restriction], *most_rows: int) -> list[Restriction]:
        """Return those of a whole launch whose places can be judged, one at least."""
        obstacles = [r.find_obstacle(r.choose_places({}), *most_rows) for r in restrictions]
        if all(obstacles):
            raise NotJudgedError(obstacles[0])
        return [r for r, obstacle in zip(restrictions, obstacles, strict=True) if not obstacle]

    def _judge_blocks(self, case: Case, restrictions: Sequence[Restriction], before: Mapping[str, Written]) -> set[str]:
        """Judge by the blocks that ran, which showed where they write."""
        judged: set[str] = set()
        reason = DEPENDENT
        for restriction in restrictions:
            written = {n: before[n] for n in restriction.names if before[n].num_elems}
            if not any(w.indices for w in written.values()):
                continue
            places = restriction.choose_places({n: w.indices for n, w in written.items()})
            if obstacle := restriction.find_obstacle(places, _MOST_ROWS):
                reason = obstacle
                continue
            judged |= self._judge_places(case, restriction, before, places)
        if not judged and not self.tally.faults:
            raise NotJudgedError(reason)
        return judged

    def _judge_places(self, case: Case, restriction: Restriction, before: Mapping[str, Written], places: Places | None = None) -> set[str]:
        """Launch on inputs that some places of the outputs need, and judge those; ``before`` is what blocks write where only some run.

        Returns the names of the outputs of which something was judged.
        """
        places = places or restriction.choose_places({})
        prepared = self._upload(case, restriction, places)
        self._launch(case, MAX_INSTRUCTIONS)
        return self._judge(case, restriction, places, prepared, before or None)

    def _draw_indices(self) -> dict[str, NDArray[Any]]:
        """Return the inputs that point to others, whole."""
        op, problem = self.op, self.problem
        found = [t for t in op.inputs if t.present(problem) and isinstance(t.resolve_values(problem), Indices)]

        def draw_one(tensor: Tensor) -> NDArray[Any]:
            shape = tensor.resolve_shape(problem)
            drawn = draw_tensor(op, problem, tensor, shape if math.prod(shape) <= _INDEX_PERIOD else (_INDEX_PERIOD,), seed=self.seed)
            return drawn if drawn.shape == shape else np.resize(drawn, shape)

        def draw() -> dict[str, NDArray[Any]]:
            return {t.name: draw_one(t) for t in found}

        return self._recall(("indices",), draw, _count_bytes) if found else {}

    def _recall(self, key: tuple[Any, ...], make: Callable[[], _Kept], measure: Callable[[_Kept], int]) -> _Kept:
        """Return what other variants have made of this problem, or make it."""
        if self.references is None:
            return make()
        return self.references.recall((*key, self.problem.name, self.seed), make, measure)

    # ----------------------------------------------------------------------------------------------------------- whole

    def _judge_whole(self, limit: int = MAX_WHOLE_INSTRUCTIONS) -> None:
        """Run all blocks on whole inputs, and compare all outputs."""
        if self.device.observer is not None:
            self._require_few_instructions(limit)
        distribution = REPEATED if self.distribution == "normal" else self.distribution
        expected = (self.references or References(self.op)).get_whole(self.problem, distribution, self.seed)
        with self._open_case() as case:
            if self.device.observer is None:
                case.upload(expected.inputs)
                case.fill_outputs(POISON_NAN)
            else:
                require_few_warps(self._capture(case))
                case.upload(expected.inputs)
            self._launch(case, limit, sample=False)
            self.tally.note_check(CHECK)
            (part,) = expected.parts
            for name, actual in case.read_outputs().items():
                self._require_written(case, name, actual.size)
                compare_places(self.tally, CHECK, name, [np.arange(n) for n in actual.shape], actual, part, np.ones(actual.shape, np.bool_))

    def _require_written(self, case: Case, name: str, wanted: int) -> None:
        observer = self.device.observer
        if observer is not None and (missing := wanted - count_written(observer, case.arguments[name], name, self.tally)) > 0:
            self.tally.add(FaultKind.NOT_WRITTEN, CHECK, f"{missing} of {wanted} elements of {name} were not written")

    # --------------------------------------------------------------------------------------------------------- written

    def _find_written(self, case: Case, before: Mapping[str, Written] | None = None) -> dict[str, Written]:
        """Return what was written of each output since the case was made; mostly it is what was written ``before``."""
        present = [t.name for t in self.op.outputs if t.present(self.problem)]
        found = {name: self._locate(case, name, (before or {}).get(name)) for name in present}
        if all(w.num_elems == 0 for w in found.values()):
            if self._depends:
                raise NotJudgedError(DEPENDENT)
            self.tally.add(FaultKind.NOT_WRITTEN, CHECK, f"{NUM_BLOCKS} blocks ran, the first and the last among them, and wrote no output")
        return found

    def _locate(self, case: Case, name: str, before: Written | None) -> Written:
        assert self.device.observer is not None
        return locate_written(self.device.observer, case.arguments[name], name, before, self.tally)

    # ---------------------------------------------------------------------------------------------------------- upload

    def _upload(self, case: Case, restriction: Restriction, places: Places) -> _Prepared:
        """Put inputs where the outputs at ``places`` need them; return what was put, and the problem of these alone."""
        if self.device.observer is None:
            case.fill_outputs(POISON_NAN)
        else:
            case.forget_written()
        key = ("inputs", restriction.names, *((axis, chosen.tobytes()) for axis, chosen in places.items()))
        prepared = self._recall(key, lambda: self._prepare(restriction, places), lambda made: made.size_bytes)
        for name, axes in prepared.needed.items():
            case.write_grid(name, axes, prepared.inputs[name])
        for name, values in prepared.indices.items():
            case.write_elements(name, values)
        return prepared

    def _prepare(self, restriction: Restriction, places: Places) -> _Prepared:
        """Draw the inputs that the outputs at ``places`` need."""
        restriction = replace(restriction, indices=restriction.aim(places))
        needed, problem = restriction.find_needed(places)
        restricted = restriction.restrict({}, places, dry=True)[0]
        # What a restriction adds for the reference alone (the numbers of the rows that are left, say) goes along, as do indices.
        inputs = {name: values for name, values in restricted.items() if name not in needed}
        for tensor in self.op.inputs:
            if tensor.name in needed:
                extents = tuple(map(len, needed[tensor.name]))
                inputs[tensor.name] = draw_tensor(self.op, self.problem, tensor, extents, seed=self.seed)
        return _Prepared(needed, dict(restriction.indices), inputs, problem)

    # ----------------------------------------------------------------------------------------------------------- judge

    def _judge(
        self, case: Case, restriction: Restriction, places: Places, prepared: _Prepared, before: Mapping[str, Written] | None
    ) -> set[str]:
        """Compare what was written; ``before`` is what a first launch wrote, where only some blocks were run."""
        self.tally.note_check(CHECK)
        (part,) = prepared.find_expected(self.op).parts
        written = self._find_written(case, before) if self.device.observer is not None else {}
        judged: set[str] = set()
        for tensor in restriction.outputs:
            name, shape = tensor.name, tensor.resolve_shape(self.problem)
            taken = {restriction.find_axis(name, axis): chosen for axis, chosen in places.items()} if shape else {}
            grid = [taken[axis] if axis in taken else np.arange(n) for axis, n in enumerate(shape)]
            actual = case.read_grid(name, grid)
            known = np.ones(actual.shape, np.bool_)
            if not grid:  # one value, which all blocks may have a part in
                known = np.full((), before is None)
            elif name in written:
                known = find_in_grid(written[name].indices, grid)
                if before is None:
                    self._require_written(case, name, math.prod(shape))
                elif tensor.role is Role.INOUT:  # the host has written it as well since then
                    known &= find_in_grid(before[name].indices, grid)
            if known.any():
                judged.add(name)
            compare_places(self.tally, CHECK, name, grid, actual, part, known)
        return judged
