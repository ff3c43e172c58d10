"""Accuracy of every kernel of reduce over the op's own problems, properties of the reductions, and liars that its own inputs give away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from device import Device
from harness.pytest_plugin import GpuBenchmark
from harness.spec import Launchable, Problem, Variant
from harness.spec.conditions import find_broken
from harness.testing import OpUnderTest
from harness.timing.batches import Mode
from harness.verify.case import Case
from harness.verify.inputs import make_inputs
from harness.verify.judge import Verifier
from harness.verify.plan import Effort

UNDER_TEST = OpUnderTest(Path(__file__).parent)
OP = UNDER_TEST.op
VARIANTS = {k.name: k.bind(k.variants[min(1, len(k.variants) - 1)]) for k in OP.kernels}
# Proved by the fast tests; the slow ones prove the others.
FAST_KERNELS = ("naive", "row_groups")
OVERS = {
    "naive": ("columns", "rows", "all"),
    "row_groups": ("columns",),
    "row_parts": ("columns",),
    "column_parts": ("rows",),
    "column_groups": ("rows",),
    "column_packs": ("rows",),
    "column_runs": ("rows",),
    "row_packs": ("columns",),
    "whole": ("all",),
    "atomic": ("rows", "all"),
}
SERVED = [(kernel, over) for kernel, overs in OVERS.items() for over in overs]
# `atomic` adds sums alone.
EXACT = [(kernel, over) for kernel, over in SERVED if kernel != "atomic"]
# The most that a kernel serves.
MOST_ROWS, MOST_COLUMNS = {"column_packs": 264, "row_parts": 1056}, {"row_packs": 16384, "column_runs": 256}
BENCH = OP.select_problems("bench")

Thin = Callable[[Effort], Effort]
Run = Callable[..., NDArray[np.generic]]


@pytest.fixture(scope="module")
def open_kernel(device: Device) -> Callable[[str], Launchable]:
    open_variant = UNDER_TEST.open(VARIANTS.values())
    return lambda kernel: open_variant(VARIANTS[kernel])


@pytest.fixture
def run(device: Device, open_kernel: Callable[[str], Launchable]) -> Run:
    def launch(kernel: str, over: str, reduction: str, x: NDArray[Any], pad: int = 0) -> NDArray[np.generic]:
        attributes = {
            "dtype": x.dtype.name,
            "result_dtype": "int64" if reduction == "argmax" else "float32",
            "reduction": reduction,
            "over": over,
        }
        problem = Problem({"rows": x.shape[0], "columns": x.shape[1]}, attributes, {"x": pad})
        return UNDER_TEST.launch(device, open_kernel(kernel), problem, {"x": x})["y"]

    return launch


def _draw(rows: int, columns: int, seed: int = 5) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


def _is_served(kernel: str, problem: Problem) -> bool:
    sums = problem.attributes["reduction"] in ("sum", "mean", "sum_squares") and problem.attributes["result_dtype"] == "float32"
    rows, columns = problem.sizes["rows"], problem.sizes["columns"]
    fits = rows <= MOST_ROWS.get(kernel, rows) and columns <= MOST_COLUMNS.get(kernel, columns)
    return fits and (kernel != "atomic" or sums)


def test_the_bound_is_none_that_zeros_pass(device: Device) -> None:
    assert Verifier(OP, device, Effort(num_hidden=4)).check_op() == ()


@pytest.mark.parametrize("kernel", VARIANTS)
def test_kernel_verifies_on_every_problem_that_it_serves(
    device: Device, open_kernel: Callable[[str], Launchable], kernel: str, thin: Thin
) -> None:
    problems = UNDER_TEST.verify(device, VARIANTS[kernel], open_kernel(kernel), thin(Effort(num_hidden=2)))
    status = {p.problem: p.status for p in problems}
    run = [p for p in OP.select_problems("verify") if p.name in status]
    served = {p.name for p in run if p.attributes["over"] in OVERS[kernel] and _is_served(kernel, p)}
    assert served and all(status[name] == "passed" for name in served)


@pytest.mark.parametrize(("kernel", "over"), SERVED)
def test_whole_numbers_are_counted_exactly(run: Run, kernel: str, over: str) -> None:
    x = np.random.default_rng(2).integers(-3, 4, (321, 515)).astype(np.float32)[: MOST_ROWS.get(kernel), : MOST_COLUMNS.get(kernel)]
    axis = {"columns": 1, "rows": 0, "all": None}[over]
    np.testing.assert_array_equal(run(kernel, over, "sum", x, pad=1), x.sum(axis=axis))
    np.testing.assert_array_equal(run(kernel, over, "sum_squares", x, pad=5), (x * x).sum(axis=axis))


@pytest.mark.parametrize(("kernel", "over"), EXACT)
def test_a_norm_scales_with_its_elements_to_the_bit(run: Run, kernel: str, over: str) -> None:
    x = _draw(130, 270)[:, : MOST_COLUMNS.get(kernel)]
    np.testing.assert_array_equal(run(kernel, over, "l2_norm", x * 64.0), run(kernel, over, "l2_norm", x) * 64.0)


@pytest.mark.parametrize("kernel", ["naive", "row_groups", "row_parts"])
def test_a_permutation_of_rows_permutes_the_results(run: Run, kernel: str) -> None:
    x, order = _draw(37, 1032), np.random.default_rng(3).permutation(37)
    np.testing.assert_array_equal(run(kernel, "columns", "sum", x[order]), run(kernel, "columns", "sum", x)[order])


@pytest.mark.parametrize(("kernel", "over"), EXACT)
def test_nan_is_the_maximum_and_the_first_one_is_found(run: Run, kernel: str, over: str) -> None:
    x = _draw(70, 90)
    x[11, 60], x[11, 20], x[40, 20], x[5, 7] = np.nan, np.nan, np.nan, np.inf
    axis = {"columns": 1, "rows": 0, "all": None}[over]
    np.testing.assert_array_equal(run(kernel, over, "max", x), x.max(axis=axis))
    np.testing.assert_array_equal(run(kernel, over, "min", x), x.min(axis=axis))
    np.testing.assert_array_equal(run(kernel, over, "argmax", x), x.argmax(axis=axis))


@pytest.mark.parametrize(("kernel", "over"), EXACT)
def test_of_equal_elements_the_first_is_found(run: Run, kernel: str, over: str) -> None:
    axis = {"columns": 1, "rows": 0, "all": None}[over]
    shape = (40, min(1029, MOST_COLUMNS.get(kernel, 1029)))
    for value in (-np.inf, 0.0, 3.5):
        x = np.full(shape, value, np.float32)
        assert not run(kernel, over, "argmax", x, pad=3).any()
    signs = np.where(np.random.default_rng(1).random(shape) < 0.5, np.float32(-0.0), np.float32(0.0))
    assert not run(kernel, over, "argmax", signs).any()
    ties = np.random.default_rng(1).integers(0, 3, shape).astype(np.float32)
    np.testing.assert_array_equal(run(kernel, over, "argmax", ties), ties.argmax(axis=axis))


@pytest.mark.slow  # compiles variants that the fast tests do not prove
@pytest.mark.parametrize("variant", [v for v in OP.variants if v.kernel == "row_packs"], ids=lambda v: v.name)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_short_rows_of_any_width_begin_anywhere(device: Device, variant: Variant, dtype: Any) -> None:
    kernel = UNDER_TEST.open([variant])(variant)
    for columns, pad in ((1, 0), (1, 1), (2, 0), (4, 4), (5, 0), (8, 0), (12, 0), (17, 3), (24, 8), (64, 0)):
        x = np.random.default_rng(columns).integers(-3, 4, (1301, columns)).astype(dtype)
        for reduction, expected in (("sum", x.astype(np.float64).sum(axis=1)), ("argmax", x.argmax(axis=1))):
            result = "int64" if reduction == "argmax" else "float32"
            attributes = {"dtype": x.dtype.name, "result_dtype": result, "reduction": reduction, "over": "columns"}
            problem = Problem({"rows": 1301, "columns": columns}, attributes, {"x": pad})
            np.testing.assert_array_equal(UNDER_TEST.launch(device, kernel, problem, {"x": x})["y"], expected)


@pytest.mark.slow  # as above
@pytest.mark.parametrize(("rows", "columns", "pad"), [(1, 40, 0), (2, 517, 3), (4, 517, 0), (8, 6, 1), (9, 33, 7), (16, 4, 4), (17, 70, 2)])
def test_columns_of_few_rows_have_the_sums_of_their_elements(run: Run, rows: int, columns: int, pad: int) -> None:
    for dtype in (np.float16, np.float32):
        x = np.random.default_rng(rows).integers(-3, 4, (rows, columns)).astype(dtype)
        np.testing.assert_array_equal(run("column_packs", "rows", "sum", x, pad), x.astype(np.float64).sum(axis=0))
        np.testing.assert_array_equal(run("column_packs", "rows", "argmax", x, pad), x.argmax(axis=0))


@pytest.mark.slow  # as above
@pytest.mark.parametrize(
    ("rows", "columns", "pad"),
    [(1, 3, 2), (70001, 1, 0), (9001, 3, 0), (9001, 3, 1), (5003, 31, 0), (4001, 48, 8), (2003, 129, 0), (1777, 256, 2)],
)
def test_runs_of_rows_have_the_sums_of_their_columns(run: Run, rows: int, columns: int, pad: int) -> None:
    for dtype in (np.float16, np.float32):
        x = np.random.default_rng(rows).integers(-3, 4, (rows, columns)).astype(dtype)
        np.testing.assert_array_equal(run("column_runs", "rows", "sum", x, pad), x.astype(np.float64).sum(axis=0))
        np.testing.assert_array_equal(run("column_runs", "rows", "argmax", x, pad), x.argmax(axis=0))


@pytest.mark.slow  # compiles two kernels that the fast tests do not prove
def test_many_parts_are_put_together(run: Run) -> None:
    x = _draw(3, 70001)
    np.testing.assert_allclose(run("row_parts", "columns", "sum", x), x.astype(np.float64).sum(axis=1), rtol=0, atol=2e-2)
    np.testing.assert_array_equal(run("row_parts", "columns", "argmax", x), x.argmax(axis=1))
    assert run("whole", "all", "max", x) == x.max()


def test_only_atomic_may_differ_between_runs() -> None:
    assert [k.name for k in OP.kernels if not k.deterministic] == ["atomic"]


def test_contradictory_calls_are_refused(device: Device, open_kernel: Callable[[str], Launchable]) -> None:
    x, y = device.allocate(4096).view((4, 8), np.float32), device.allocate(4096).view((4,), np.float32)
    naive = open_kernel("naive")
    assert naive.supports(x=x, y=y, reduction="sum", over="columns") == ""
    with pytest.raises(ValueError, match="shape"):
        naive.supports(x=x, y=y, reduction="sum", over="rows")
    with pytest.raises(ValueError, match=r"result_dtype = 0: the other arguments ask for 8"):
        naive.supports(x=x, y=y, reduction="argmax", over="columns")
    other = device.allocate(4096).view((8,), np.float32)
    assert naive.supports(x=x, y=other, reduction="sum", over="rows") == ""
    assert "over" in open_kernel("row_groups").supports(x=x, y=other, reduction="sum", over="rows")


def _select(reduction: str) -> set[str]:
    return {p.name for p in OP.select_problems("verify") if p.attributes["reduction"] == reduction}


@pytest.mark.slow
def test_the_last_of_equal_elements_and_a_maximum_without_nan_are_refused(device: Device, tmp_path: Path) -> None:
    lies = (("key > state.key ?", "key >= state.key ?"), ("max.NaN.f32", "max.f32"))
    liar = UNDER_TEST
    for i, (old, new) in enumerate(lies):
        (tmp_path / str(i)).mkdir()
        liar = liar.patch(tmp_path / str(i), "reduce/reductions.cuh", old, new)
    variant = VARIANTS["naive"]
    result = Verifier(liar.op, device, Effort(num_hidden=0)).verify(variant, liar.open([variant])(variant))
    assert {p.problem for p in result.problems if p.faults} == _select("argmax") | _select("max")
    assert {fault.kind.value for fault in result.all_faults} == {"mismatch"}


@pytest.mark.slow
def test_parts_that_are_left_out_are_refused(device: Device, tmp_path: Path) -> None:
    liar = UNDER_TEST.patch(tmp_path, "reduce/kernels.cu", "lane, num_parts, lanes,", "lane, min(num_parts, 2), lanes,")
    variant = VARIANTS["column_parts"]
    result = Verifier(liar.op, device, Effort(num_hidden=0)).verify(variant, liar.open([variant])(variant))
    many_parts = {p.name for p in OP.select_problems("verify") if p.attributes["over"] == "rows" and p.sizes["rows"] > 256}
    assert {p.problem for p in result.problems if p.faults} == many_parts
    assert {fault.kind.value for fault in result.all_faults} == {"mismatch"}


def _choose(rows: int, columns: int, dtype: str, over: str) -> str:
    assert OP.choose is not None
    return OP.choose(Problem({"rows": rows, "columns": columns}, {"dtype": dtype, "reduction": "mean", "over": over})).variant.name


@pytest.mark.parametrize(("rows", "kernel"), [(2, "naive"), (16, "naive"), (17, "column_parts")])
def test_columns_of_few_rows_are_taken_whole(rows: int, kernel: str) -> None:
    assert _choose(rows, 156270, "bfloat16", "rows").startswith(f"{kernel}/")


@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "width"),
    [(824, 2048, "float16", 2), (100000, 144, "bfloat16", 2), (100000, 180, "bfloat16", 8), (8192, 4096, "float32", 32)],
)
def test_blocks_of_columns_are_as_wide_as_leaves_few_lanes_idle(rows: int, columns: int, dtype: str, width: int) -> None:
    assert f"_width{width}_" in _choose(rows, columns, dtype, "rows")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("over", ["rows", "columns"])
def test_what_is_chosen_serves(dtype: str, over: str) -> None:
    assert OP.choose is not None
    for rows in (1, 16, 17, 263, 264, 1056, 1057, 100000):
        for columns in (1, 3, 111, 112, 127, 128, 223, 224, 256, 257, 1024, 40000):
            problem = Problem({"rows": rows, "columns": columns}, {"dtype": dtype, "result_dtype": dtype, "reduction": "max", "over": over})
            variant = OP.choose(problem).variant
            domain = OP.find_kernel(variant.kernel).domain
            assert domain is not None and find_broken(domain(variant.tunables), OP.find_facts(problem)) is None


@pytest.mark.parametrize(
    ("rows", "columns", "threads"), [(131099, 640, 4), (318, 168, 32), (108791, 1664, 32), (16384, 8192, 128), (1 << 20, 8, 1)]
)
def test_threads_of_a_row_are_few_where_rows_are_many(rows: int, columns: int, threads: int) -> None:
    assert f"/threads{threads}_" in _choose(rows, columns, "float16", "columns")


@pytest.mark.parametrize("kernel", ["column_parts", "whole"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize(("rows", "columns", "pad"), [(70, 517, 0), (70, 517, 1), (41, 3, 0), (33, 9, 2), (1, 77, 0)])
def test_rows_that_begin_anywhere_give_the_bits_of_aligned_ones(
    run: Run, kernel: str, dtype: Any, rows: int, columns: int, pad: int
) -> None:
    over = {"column_parts": "rows", "whole": "all"}[kernel]
    x = np.random.default_rng(4).integers(-3, 4, (rows, columns)).astype(dtype)
    axis = {"rows": 0, "all": None}[over]
    np.testing.assert_array_equal(run(kernel, over, "sum_squares", x, pad), (x.astype(np.float64) ** 2).sum(axis=axis))
    np.testing.assert_array_equal(run(kernel, over, "argmax", x, pad), x.argmax(axis=axis))
    if over == "rows":
        ragged, aligned = _draw(rows, columns).astype(dtype), -columns % 8
        np.testing.assert_array_equal(run(kernel, over, "sum", ragged, pad), run(kernel, over, "sum", ragged, aligned))


@pytest.mark.gpu
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("problem", BENCH, ids=[p.name for p in BENCH])
@pytest.mark.parametrize("kernel", VARIANTS)
def test_speed(gpu_benchmark: GpuBenchmark, open_kernel: Callable[[str], Launchable], kernel: str, problem: Problem, mode: Mode) -> None:
    with Case(gpu_benchmark.timer.device, OP, problem) as case:
        case.upload(make_inputs(OP, problem, "uniform"))
        gpu_benchmark.run_case(case, open_kernel(kernel), mode)
