"""Large problems of which some blocks run: what those have wrong is the variant's fault unless other blocks have a part in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from device import DeviceError
from device.interface import Graph, KernelNode
from device.observer import Report
from harness.discover import find_op
from harness.spec import Problem
from harness.verify.feasibility import (
    LEAST_PART,
    NotJudgedError,
    count_warps,
    is_affordable,
    require_few_bytes,
    require_few_filled,
    require_few_warps,
    take_part,
)
from harness.verify.findings import FaultKind, Tally
from harness.verify.places import list_restrictions
from harness.verify.sampling import SampledRun

OP = find_op("softmax").op


class Observer:
    """Tells how many blocks depended on others and how many updates are shared, and which bytes were written."""

    def __init__(self, dependence: str = "0,0", written: Sequence[tuple[int, int]] = (), reports: Sequence[Report] = ()) -> None:
        self.dependence = dependence
        self.written = list(written)
        self.reports = list(reports)
        self.options: dict[str, str] = {}
        self.num_cleared = 0

    def clear_error(self) -> None:
        self.num_cleared += 1

    def take_reports(self) -> list[Report]:
        return self.reports

    def get_option(self, name: str) -> str:
        return {"dependence": self.dependence, "instructions": "0"}[name]

    def find_written(self, address: int, size_bytes: int) -> list[tuple[int, int]]:
        return self.written

    @contextmanager
    def use_options(self, options: dict[str, str]) -> Iterator[None]:
        self.options = options
        yield

    @contextmanager
    def observe(self, checks: Sequence[str]) -> Iterator[None]:
        assert checks == ("memcheck",)
        yield


def make_run(observer: Observer) -> SampledRun:
    device: Any = SimpleNamespace(observer=observer)
    return SampledRun(device, OP, OP.problems[0], None, Tally(), None)  # type: ignore[arg-type]


CASE: Any = SimpleNamespace(
    input_addresses=[256, 512],
    given_addresses=[256, 512, 1024],
    arguments={"y": SimpleNamespace(dtype=np.dtype("f4"), address=0, span_bytes=4, shape=(1, 1), strides_bytes=(4, 4))},
)


def fail_to_launch(self: SampledRun, case: Any) -> None:
    raise DeviceError("the launch failed")


def launch(monkeypatch: pytest.MonkeyPatch, observer: Observer, *, sample: bool = True) -> SampledRun:
    monkeypatch.setattr(SampledRun, "_run", fail_to_launch)
    run = make_run(observer)
    run._launch(CASE, 1000, sample=sample)
    return run


def test_blocks_that_fail_by_themselves_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    observer = Observer("0,7")
    with pytest.raises(DeviceError, match="the launch failed"):
        launch(monkeypatch, observer)
    assert (observer.options["read_only"], observer.options["given"]) == ("256,512", "256,512,1024")
    assert observer.options["sample_blocks"] == "4"


def test_of_blocks_that_fail_on_what_others_would_have_written_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    observer = Observer("1,0")
    with pytest.raises(NotJudgedError, match="may depend on blocks that are not run: the launch failed"):
        launch(monkeypatch, observer)
    assert observer.num_cleared == 1


def test_a_finding_is_one_whatever_else_depends_on_other_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    report = Report("out_of_bounds_read", "error", "an address past the end")
    with pytest.raises(DeviceError, match="the launch failed"):
        launch(monkeypatch, Observer("1,0", reports=[report]))


def test_blocks_that_wait_for_ever_may_wait_for_those_that_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    observer = Observer("0,0", reports=[Report("endless_loop", "error", "a loop that does not end")])
    with pytest.raises(NotJudgedError, match="wait for others"):
        launch(monkeypatch, observer)
    assert observer.num_cleared == 1
    with pytest.raises(DeviceError, match="the launch failed"):
        launch(monkeypatch, observer, sample=False)


def test_a_launch_of_all_blocks_depends_on_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    observer = Observer("3,3")
    with pytest.raises(DeviceError, match="the launch failed"):
        launch(monkeypatch, observer, sample=False)
    assert "sample_blocks" not in observer.options and "given" not in observer.options


def test_blocks_that_write_nothing_are_at_fault_unless_others_have_a_part_in_it() -> None:
    run = make_run(Observer("0,0"))
    run._find_written(CASE)
    assert [f.kind for f in run.tally.faults] == [FaultKind.NOT_WRITTEN]
    for dependence in ("2,0", "0,2"):  # they read what others write, or update what others update
        run = make_run(Observer(dependence))
        with pytest.raises(NotJudgedError, match="may depend on blocks that are not run"):
            run._find_written(CASE)
        assert not run.tally.faults
    assert make_run(Observer("2,0", [(0, 4)]))._find_written(CASE)["y"].num_elems == 1


def test_few_blocks_that_would_reach_the_limit_are_not_started() -> None:
    require_few_bytes(OP, Problem({"rows": 8, "columns": 131072}))
    with pytest.raises(NotJudgedError, match="move 1074 MB, too many to run here"):
        require_few_bytes(OP, Problem({"rows": 1024, "columns": 131072}))


def test_a_launch_that_fills_a_large_tensor_first_is_not_made() -> None:
    require_few_filled(cast(Graph, SimpleNamespace(filled_bytes=1 << 27)))
    with pytest.raises(NotJudgedError, match="it fills 1074 MB of memory first"):
        require_few_filled(cast(Graph, SimpleNamespace(filled_bytes=1 << 30)))


def test_a_part_of_a_problem_is_one_of_its_largest_size() -> None:
    server: Any = SimpleNamespace(supports=lambda **arguments: "" if arguments["x"].shape[0] == 2 else "not so many rows")
    part = take_part(OP, Problem({"rows": 2, "columns": 1 << 24}, padding={"x": 8}), server, 16, LEAST_PART)
    assert part is not None and part.sizes == {"rows": 2, "columns": 1 << 20} and part.padding == {"x": 8}
    assert take_part(OP, Problem({"rows": 2, "columns": 1 << 16}), server, 16, LEAST_PART) is None, (
        "most of its work may be what any launch does"
    )
    assert take_part(OP, Problem({"rows": 3, "columns": 1 << 24}), server, 16, LEAST_PART) is None


@pytest.mark.parametrize(
    ("parts", "is_refused", "probes"),
    [
        ((0, 0), False, 1),  # too small for parts
        ((3, 0), False, 1),
        ((4, 2), True, 2),  # 64, as all of it grows with the size
        ((4, 3), False, 2),  # 34, as half of it does not
        ((7, 0), True, 1),
    ],
)
def test_a_launch_of_all_blocks_is_forecast_by_parts(
    monkeypatch: pytest.MonkeyPatch, parts: tuple[int, int], is_refused: bool, probes: int
) -> None:
    made = []

    def count(self: SampledRun, part: int, least: int, limit: int) -> int:
        made.append(part)
        return parts[part == 32] * 10**6

    monkeypatch.setattr(SampledRun, "_count_part", count)
    context = pytest.raises(NotJudgedError, match=r"its blocks would take about .* million warp instructions, more than 50")
    with context if is_refused else nullcontext():
        make_run(Observer())._require_few_instructions(50_000_000)
    assert made == [16, 32][:probes]


def judge_whole(monkeypatch: pytest.MonkeyPatch, refusal: str, rows: int = 1024) -> list[str]:
    """Return what is judged of a problem that is to be run whole, where that is refused for a reason."""
    done = []

    def judge(self: SampledRun, *limits: int) -> None:
        done.append("whole")
        if refusal:
            raise NotJudgedError(refusal)

    monkeypatch.setattr(SampledRun, "_judge_whole", judge)
    monkeypatch.setattr(SampledRun, "_judge_part", lambda self: done.append("part") or {"y"})
    run = replace(make_run(Observer()), problem=Problem({"rows": rows, "columns": 512}), whole=True)
    run.device.properties = SimpleNamespace(memory_bytes=1 << 40)  # type: ignore[misc]
    run.run()
    return done


def test_what_is_run_whole_is_judged_in_part_only_if_it_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judge_whole(monkeypatch, "") == ["whole"]
    assert judge_whole(monkeypatch, "too many warps") == ["whole", "part"]
    assert judge_whole(monkeypatch, "", rows=1 << 14) == ["part"]


@pytest.mark.parametrize(("columns", "part"), [(1 << 20, 16), (1 << 24, 256)])
def test_a_long_launch_is_told_by_a_part_of_it(monkeypatch: pytest.MonkeyPatch, columns: int, part: int) -> None:
    limits = []

    def launch_part(self: SampledRun, case: Any, limit: int, *, sample: bool) -> None:
        limits.append((self.problem.sizes["columns"], limit, sample))
        raise NotJudgedError("its blocks take more than 3 million warp instructions")

    monkeypatch.setattr(SampledRun, "_open_case", lambda self: nullcontext())
    monkeypatch.setattr(SampledRun, "_launch", launch_part)
    server: Any = SimpleNamespace(supports=lambda **arguments: "")
    run = replace(make_run(Observer()), problem=Problem({"rows": 1, "columns": columns}), launchable=server)
    with pytest.raises(NotJudgedError, match=f"a {part}th of it: its blocks take more than 3 million warp instructions"):
        run._judge_whole(16_000_000)
    assert limits == [(1 << 16, 2_000_000, False)]


def test_where_a_place_needs_most_of_the_inputs_a_whole_launch_is_not_judged() -> None:
    op = find_op("gemm_backward").op
    attributes = {"dtype": "float32", "w_layout": "kn"}
    tall = op.complete(Problem({"M": 4194864, "N": 1024, "K": 64}, attributes))
    wide = op.complete(Problem({"M": 64, "N": 1024, "K": 4195000}, attributes))

    def find_obstacle(problem: Problem) -> str:
        (restriction,) = list_restrictions(op, problem, 1)
        return restriction.find_obstacle(restriction.choose_places({}))

    assert "the reference of a single place" in find_obstacle(tall)
    assert not find_obstacle(wide)
    narrow = op.complete(Problem({"M": 4194704, "N": 64, "K": 1024}, attributes))
    assert "a single place needs" in find_obstacle(narrow)
    reduce = find_op("reduce").op
    long = reduce.complete(Problem({"rows": 8, "columns": 1 << 25}, {"reduction": "sum", "over": "columns"}))
    (restriction,) = list_restrictions(reduce, long, 1)
    assert restriction.find_obstacle(restriction.choose_places({})) == "a single place needs 33554432 elements of the inputs"
    device: Any = SimpleNamespace(observer=None, properties=SimpleNamespace(memory_bytes=1 << 40))
    with pytest.raises(NotJudgedError, match="the reference of a single place"):
        SampledRun(device, op, tall, None, Tally(), None).run()  # type: ignore[arg-type]


def test_a_launch_of_too_many_warps_is_not_run_whole() -> None:
    def count(grid: tuple[int, int, int], block: tuple[int, int, int]) -> Graph:
        return cast(Graph, SimpleNamespace(kernel_nodes=[KernelNode("a", grid, block, 0), KernelNode("b", (1, 1, 1), (33, 1, 1), 0)]))

    assert count_warps(count((10, 2, 1), (8, 8, 1))) == 42
    require_few_warps(count((2**18 - 1, 1, 1), (64, 1, 1)))
    with pytest.raises(NotJudgedError, match="it has 524290 warps, too many to run here"):
        require_few_warps(count((2**18, 1, 1), (64, 1, 1)))


def test_what_is_judged_in_part_is_run_whole_if_it_is_smaller_than_what_can_only_be_judged_whole() -> None:
    def list_ways(megabytes: int) -> list[bool]:
        problem = Problem({"rows": megabytes * 64, "columns": 2048})  # read and written
        return [is_affordable(OP, problem, is_judged=j, is_search=s) for j, s in ((True, False), (False, False), (False, True))]

    assert list_ways(4) == [True, True, True]
    assert list_ways(16) == [False, True, True]
    assert list_ways(60) == [False, False, True]
    assert list_ways(80) == [False, False, False]


@pytest.mark.parametrize(("name", "axis"), [("strided_copy", 4), ("sdpa", 1)])
def test_a_restriction_of_an_array_of_zero_strides_copies_what_is_left(name: str, axis: int) -> None:
    """The whole of it would not fit any memory."""
    op = find_op(name).op
    problem = op.problems[0] if name == "sdpa" else replace(op.problems[0], sizes=dict(op.problems[0].sizes) | {"d": 1 << 40})
    tensors = [t for t in op.inputs if t.present(problem)]
    wide = {
        t.name: np.broadcast_to(np.int8(0), [1 << 40 if i == axis else 2 for i in range(len(t.resolve_shape(problem)))]) for t in tensors
    }
    assert op.sampling is not None
    cut, _ = op.sampling.restrict(wide, problem, axis if name == "sdpa" else 0, np.arange(3))
    assert {cut[t.name].shape[axis] for t in tensors if len(wide[t.name].shape) > axis} == {3}
