"""Accuracy of every kernel of rmsnorm over the op's own problems, what normalisation must keep to, and a liar."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from device import Device
from harness.pytest_plugin import GpuBenchmark
from harness.spec import Launchable, Problem
from harness.testing import OpUnderTest
from harness.timing.batches import Mode
from harness.verify.case import Case
from harness.verify.inputs import make_inputs
from harness.verify.judge import Verifier
from harness.verify.plan import Effort

UNDER_TEST = OpUnderTest(Path(__file__).parent)
OP = UNDER_TEST.op
VARIANTS = {k.name: k.bind(k.variants[-1]) for k in OP.kernels}
VARIANTS["row_in_team"] = OP.find_kernel("row_in_team").bind(OP.find_kernel("row_in_team").variants[0])
VARIANTS["rows_together"] = OP.find_kernel("rows_together").bind({"threads": 32, "rows": 4, "elems": 32, "together": 2})
# Its rows are twice as long as those that are listed, and go otherwise where they are whole packs.
VARIANTS["rows_in_run"] = OP.find_kernel("rows_in_run").bind({"threads": 128, "rows": 64})
# What a kernel does not serve: rows that are too short for a cluster, or longer than lanes hold.
LIMITS = {
    "cluster_passes": "must be at least",
    "row_in_team": "must be at least",
    "rows_in_stages": "must be at least",
    "rows_together": "must not exceed",
    "rows_in_run": "must not exceed",
    "row_in_words": "must not exceed",
}
# Proved by the fast tests; the slow ones prove the others.
FAST_KERNELS = ("naive", "row_in_registers")
BENCH = OP.select_problems("bench")

Open = Callable[[str], Launchable]
Thin = Callable[[Effort], Effort]


@pytest.fixture(scope="module")
def open_kernel(device: Device) -> Open:
    open_variant = UNDER_TEST.open(VARIANTS.values())
    return lambda kernel: open_variant(VARIANTS[kernel])


def test_the_bound_is_none_that_zeros_pass(device: Device) -> None:
    assert Verifier(OP, device, Effort(num_hidden=4)).check_op() == ()


@pytest.mark.parametrize("kernel", VARIANTS)
def test_kernel_verifies_on_every_problem(device: Device, open_kernel: Open, kernel: str, thin: Thin) -> None:
    problems = UNDER_TEST.verify(device, VARIANTS[kernel], open_kernel(kernel), thin(Effort(num_hidden=2)))
    passed = [p for p in problems if p.status == "passed"]
    assert all(LIMITS.get(kernel, "served") in p.reason for p in problems if p not in passed)
    assert len(passed) >= (4 if kernel in LIMITS else len(problems))


def make_problem(rows: int, columns: int, eps: float = 2.0**-16, **attributes: bool | str) -> Problem:
    return Problem({"rows": rows, "columns": columns}, {"with_rstd": True, **attributes}, scalars={"eps": eps})


@pytest.mark.parametrize("columns", [37, 256])
@pytest.mark.parametrize("kernel", VARIANTS)
def test_rows_times_a_power_of_two_have_the_same_bits(device: Device, open_kernel: Open, kernel: str, columns: int) -> None:
    columns = UNDER_TEST.widen(VARIANTS[kernel], "columns", columns)
    problem = make_problem(6, columns)
    inputs = make_inputs(OP, problem)
    once = UNDER_TEST.launch(device, open_kernel(kernel), problem, inputs)
    scaled = UNDER_TEST.launch(device, open_kernel(kernel), make_problem(6, columns, 2.0**-12), inputs | {"x": inputs["x"] * np.float32(4)})
    np.testing.assert_array_equal(scaled["y"], once["y"])
    np.testing.assert_array_equal(scaled["rstd"], once["rstd"] * np.float32(0.25))


@pytest.mark.parametrize("kernel", VARIANTS)
def test_a_permutation_of_rows_permutes_the_results(device: Device, open_kernel: Open, kernel: str) -> None:
    problem = make_problem(9, UNDER_TEST.widen(VARIANTS[kernel], "columns", 100), with_residual=True)
    inputs = make_inputs(OP, problem)
    order = np.random.default_rng(4).permutation(9)
    once = UNDER_TEST.launch(device, open_kernel(kernel), problem, inputs)
    permuted = inputs | {"x": inputs["x"][order], "residual": inputs["residual"][order]}
    moved = UNDER_TEST.launch(device, open_kernel(kernel), problem, permuted)
    for name, values in once.items():
        np.testing.assert_array_equal(moved[name], values[order], err_msg=name)


@pytest.mark.parametrize(("columns", "dtype", "gap"), [(4099, "bfloat16", 2), (4099, "float32", 1)])
def test_blocks_that_stay_reuse_the_memory_of_rows(device: Device, open_kernel: Open, columns: int, dtype: str, gap: int) -> None:
    rows = 540  # more than all blocks keep at once
    problem = Problem({"rows": rows, "columns": columns}, {"dtype": dtype, "with_residual": True}, {"y": gap})
    inputs = make_inputs(OP, problem)
    exact = {name: values.astype(np.float64) for name, values in inputs.items()}
    expected = OP.reference(exact, problem)
    found = UNDER_TEST.launch(device, open_kernel("rows_in_stages"), problem, inputs)
    for name, bound in OP.tolerance(exact, expected, problem).items():
        assert (np.abs(found[name].astype(np.float64) - expected[name]) <= bound).all(), name


@pytest.mark.parametrize("kernel", VARIANTS)
def test_what_is_normalised_is_the_sum_as_it_was_written(device: Device, open_kernel: Open, kernel: str) -> None:
    columns = UNDER_TEST.widen(VARIANTS[kernel], "columns", 130)
    problem = make_problem(5, columns, dtype="bfloat16", with_residual=True)
    inputs = make_inputs(OP, problem)
    added = UNDER_TEST.launch(device, open_kernel(kernel), problem, inputs)
    plain = {name: values for name, values in inputs.items() if name != "residual"} | {"x": added["sum"]}
    alone = UNDER_TEST.launch(device, open_kernel(kernel), make_problem(5, columns, dtype="bfloat16"), plain)
    np.testing.assert_array_equal(added["y"].view(np.uint16), alone["y"].view(np.uint16))


@pytest.mark.slow  # a liar is compiled and proved
def test_a_sum_that_is_kept_in_16_bits_is_refused_wherever_rows_have_16(device: Device, tmp_path: Path) -> None:
    liar = UNDER_TEST.patch(
        tmp_path,
        "common/norm.cuh",
        "squares += (read(j) - mean) * (read(j) - mean);",
        "squares = round_to<Element>(squares + (read(j) - mean) * (read(j) - mean));",
    )
    variant = VARIANTS["naive"]
    result = Verifier(liar.op, device, Effort(num_hidden=0)).verify(variant, liar.open([variant])(variant))
    assert {fault.kind.value for fault in result.all_faults} <= {"mismatch", "biased"}
    refused = {p.problem for p in result.problems if p.faults}
    # What two more roundings a row do to 67 rows of 3 elements does not reach the bound.
    wrong = [p for p in OP.select_problems("verify") if p.attributes["dtype"] != "float32" and p.sizes["columns"] != 3]
    assert refused == {p.name for p in wrong}


@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "variant"),
    [
        (976, 12288, "float16", "row_in_registers/threads512_rows1_elems32"),
        (44175, 768, "float16", "row_in_registers/threads32_rows4_elems32"),
        (12829, 8192, "float32", "row_in_registers/threads512_rows1_elems16"),
        (684, 512, "float16", "row_in_registers/threads128_rows1_elems8"),
        (146, 36229, "float16", "row_in_team/threads512_team4_elems32"),
        (84, 41032, "float16", "row_in_team/threads512_team4_elems32"),
    ],
)
def test_threads_of_a_row_follow_from_its_length_and_how_many_there_are(rows: int, columns: int, dtype: str, variant: str) -> None:
    assert OP.choose is not None
    problem = Problem({"rows": rows, "columns": columns}, {"dtype": dtype})
    assert OP.choose(problem).variant.name == variant


@pytest.mark.gpu
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("problem", BENCH, ids=[p.name for p in BENCH])
@pytest.mark.parametrize("kernel", VARIANTS)
def test_speed(gpu_benchmark: GpuBenchmark, open_kernel: Open, kernel: str, problem: Problem, mode: Mode) -> None:
    with Case(gpu_benchmark.timer.device, OP, problem) as case:
        case.upload(make_inputs(OP, problem, "uniform"))
        gpu_benchmark.run_case(case, open_kernel(kernel), mode)
