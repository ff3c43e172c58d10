"""Accuracy of every kernel of embedding_backward over the op's own problems, its order of sums, wrong indices, and a liar."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
VARIANTS = {k.name: k.bind(k.variants[0]) for k in OP.kernels}
# Proved by the fast tests; the slow ones prove the others.
FAST_KERNELS = ("segments",)
BENCH = OP.select_problems("bench")

Open = Callable[[str], Launchable]
Thin = Callable[[Effort], Effort]


@pytest.fixture(scope="module")
def open_kernel(device: Device) -> Open:
    open_variant = UNDER_TEST.open(VARIANTS.values())
    return lambda kernel: open_variant(VARIANTS[kernel])


def _make_problem(count: int, vocabulary: int, width: int) -> Problem:
    return Problem({"count": count, "vocabulary": vocabulary, "width": width}, {"with_status": True})


def test_the_bound_is_none_that_zeros_pass(device: Device) -> None:
    assert Verifier(OP, device, Effort(num_hidden=4)).check_op() == ()


@pytest.mark.parametrize("kernel", VARIANTS)
def test_kernel_verifies_on_every_problem(device: Device, open_kernel: Open, kernel: str, thin: Thin) -> None:
    problems = UNDER_TEST.verify(device, VARIANTS[kernel], open_kernel(kernel), thin(Effort(num_hidden=2)))
    served = [p for p in problems if p.status != "unsupported"]
    assert len(served) >= 6 and all(p.status == "passed" for p in served)


@pytest.mark.parametrize("vocabulary", [1, 511, 512, 70000, 300000])
def test_the_sort_takes_every_index_to_its_row(device: Device, open_kernel: Open, vocabulary: int) -> None:
    indices = np.random.default_rng(6).integers(0, vocabulary, 4500)
    inputs = {"dy": np.ones((4500, 1), np.float32), "indices": indices, "status": np.array(0, np.int32)}
    found = UNDER_TEST.launch(device, open_kernel("segments"), _make_problem(4500, vocabulary, 1), inputs)
    np.testing.assert_array_equal(found["dtable"][:, 0], np.bincount(indices, minlength=vocabulary))


@pytest.mark.parametrize("kernel", VARIANTS)
def test_wrong_indices_are_counted_once_and_add_nothing(device: Device, open_kernel: Open, kernel: str) -> None:
    indices = np.array([0, 7, 6, -1, 2**62, -(2**63), 3])
    inputs = {"dy": np.ones((7, 20), np.float32), "indices": indices, "status": np.array(2, np.int32)}
    found = UNDER_TEST.launch(device, open_kernel(kernel), _make_problem(7, 7, 20), inputs)
    assert found["status"] == 2 + 4
    np.testing.assert_array_equal(found["dtable"][:, 0], [1, 0, 0, 1, 0, 0, 1])


def test_the_gradient_scales_with_dy_to_the_bit(device: Device, open_kernel: Open) -> None:
    rng = np.random.default_rng(8)
    inputs = {"dy": rng.standard_normal((900, 36)).astype(np.float32), "indices": rng.integers(0, 5, 900), "status": np.array(0, np.int32)}
    problem = _make_problem(900, 5, 36)
    once = UNDER_TEST.launch(device, open_kernel("segments"), problem, inputs)
    scaled = UNDER_TEST.launch(device, open_kernel("segments"), problem, inputs | {"dy": inputs["dy"] * np.float32(4.0)})
    np.testing.assert_array_equal(scaled["dtable"], once["dtable"] * 4.0)


@pytest.mark.parametrize("kernel", ["segments", "tables", "direct", "tiles", "buckets", "integers"])
@pytest.mark.parametrize(("count", "vocabulary", "width"), [(2048, 48, 1), (2047, 40, 61), (2047, 40, 513), (64, 1, 1000), (1, 48, 9)])
def test_every_row_is_written_and_no_gradient_is_lost(
    device: Device, open_kernel: Open, kernel: str, count: int, vocabulary: int, width: int
) -> None:
    if kernel == "integers" and width > 64:
        pytest.skip("integers serves rows of up to 64 columns")
    rng = np.random.default_rng(count)
    dy = rng.integers(-8, 9, (count, width)).astype(np.float32)
    indices = rng.integers(0, vocabulary, count)
    inputs = {"dy": dy, "indices": indices, "status": np.array(0, np.int32)}
    found = UNDER_TEST.launch(device, open_kernel(kernel), _make_problem(count, vocabulary, width), inputs)
    expected = np.zeros((vocabulary, width))
    np.add.at(expected, indices, dy)
    np.testing.assert_array_equal(found["dtable"], expected)


@pytest.mark.parametrize("kernel", ["tiles", "buckets", "integers"])
@pytest.mark.parametrize(("count", "rows"), [(9000, 1), (20000, 2), (20000, 3), (9000, 700)])
def test_tiles_take_rows_with_more_indices_than_they_can_keep(
    device: Device, open_kernel: Open, kernel: str, count: int, rows: int
) -> None:
    """All of them point to few rows of one tile: it takes half of its rows at a time, and then a row by slabs."""
    rng = np.random.default_rng(rows)
    dy = rng.integers(-8, 9, (count, 5)).astype(np.float32)
    indices = 2000 + rng.integers(0, rows, count)
    inputs = {"dy": dy, "indices": indices, "status": np.array(0, np.int32)}
    found = UNDER_TEST.launch(device, open_kernel(kernel), _make_problem(count, 1 << 20, 5), inputs)["dtable"]
    expected = np.zeros((rows, 5))
    np.add.at(expected, indices - 2000, dy)
    np.testing.assert_array_equal(found[2000 : 2000 + rows], expected)
    assert not found[:2000].any() and not found[2000 + rows :].any()


@given(st.integers(0, 2**32 - 1), st.integers(-20, 8), st.integers(0, 60), st.sampled_from((300, 20000)))
@settings(max_examples=8, deadline=None)
def test_sums_of_integers_are_the_same_in_any_order(
    device: Device, open_kernel: Open, seed: int, exponent: int, span: int, count: int
) -> None:
    """Terms of very different sizes that cancel each other in part: their order changes no bit, and the error is far below fp32's."""
    rng = np.random.default_rng(seed)
    indices = rng.integers(0, 3, count)
    dy = np.ldexp(rng.standard_normal((count, 2)), exponent + rng.integers(-span, 1, (count, 2))).astype(np.float32)
    problem = _make_problem(count, 3, 2)
    inputs = {"dy": dy, "indices": indices, "status": np.array(0, np.int32)}
    order = rng.permutation(count)
    found = UNDER_TEST.launch(device, open_kernel("integers"), problem, inputs)["dtable"]
    turned = UNDER_TEST.launch(device, open_kernel("integers"), problem, inputs | {"dy": dy[order], "indices": indices[order]})["dtable"]
    np.testing.assert_array_equal(found, turned)
    for row in range(3):
        terms = dy[indices == row].astype(np.float64)
        if len(terms) == 0:
            continue
        exact = np.array([math.fsum(column) for column in terms.T])
        unit = np.abs(terms).max(axis=0) * 2.0**-42
        assert (np.abs(found[row] - exact) <= len(terms) * unit + np.spacing(np.abs(exact).astype(np.float32))).all()


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ([np.inf, 1.0, np.inf], np.inf),
        ([-np.inf, 3e38], -np.inf),
        ([np.inf, -np.inf, 5.0], np.nan),
        ([np.nan, 1.0], np.nan),
        ([3e38, 3e38], np.inf),
        ([3e38, 3e38, -3e38], 3e38),
        ([1e-45, 1e-45, -3e-45], np.float32(1e-45) * 2 + np.float32(-3e-45)),
        ([1e30, 1e-30, -1e30], 0.0),
        ([-0.0, 0.0], 0.0),
    ],
)
def test_sums_of_integers_know_infinities_and_the_least_numbers(
    device: Device, open_kernel: Open, terms: list[float], expected: float
) -> None:
    count = len(terms)
    inputs = {"dy": np.array(terms, np.float32)[:, None], "indices": np.zeros(count, np.int64), "status": np.array(0, np.int32)}
    found = UNDER_TEST.launch(device, open_kernel("integers"), _make_problem(count, 2, 1), inputs)["dtable"]
    np.testing.assert_array_equal(found, np.array([[expected], [0.0]], np.float32))


@pytest.mark.slow
def test_a_lost_carry_is_refused(device: Device, tmp_path: Path) -> None:
    liar = UNDER_TEST.patch(tmp_path, "embedding_backward/integers.cuh", "(before + term_low < before ? 1 : 0)", "0")
    variant = VARIANTS["integers"]
    result = Verifier(liar.op, device, Effort(num_hidden=0)).verify(variant, liar.open([variant])(variant))
    assert "mismatch" in {fault.kind.value for fault in result.all_faults}


@pytest.mark.slow
def test_a_chunk_that_is_taken_for_a_whole_segment_is_refused(device: Device, tmp_path: Path) -> None:
    liar = UNDER_TEST.patch(
        tmp_path, "embedding_backward/kernels.cu", "if (has_chunks) add_rows", "if (has_chunks && last - first > 64) add_rows"
    )
    variant = VARIANTS["segments"]
    result = Verifier(liar.op, device, Effort(num_hidden=0)).verify(variant, liar.open([variant])(variant))
    refused = {p.problem for p in result.problems if p.faults}
    long_segments = {p.name for p in OP.select_problems("verify") if p.sizes["count"] > 32 * (p.sizes["vocabulary"] + 1)}
    assert long_segments <= refused < {p.name for p in OP.select_problems("verify")}
    assert {fault.kind.value for fault in result.all_faults} == {"mismatch"}


def test_what_is_timed_has_no_wrong_index_and_what_is_proved_has() -> None:
    problem = next(p for p in OP.select_problems("verify") if p.attributes.get("with_status") and p.sizes["count"] > 100)
    timed, proved = (make_inputs(OP, problem, d)["indices"].astype(np.int64) for d in ("uniform", "normal"))
    assert ((timed >= 0) & (timed < problem.sizes["vocabulary"])).all()
    assert (proved < 0).any() and (proved >= problem.sizes["vocabulary"]).any()


@pytest.mark.gpu
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("problem", BENCH, ids=[p.name for p in BENCH])
@pytest.mark.parametrize("kernel", VARIANTS)
def test_speed(gpu_benchmark: GpuBenchmark, open_kernel: Open, kernel: str, problem: Problem, mode: Mode) -> None:
    if kernel == "naive" and problem.sizes["count"] * problem.sizes["vocabulary"] > 1 << 28:
        pytest.skip("naive looks at every index for every element: minutes")
    with Case(gpu_benchmark.timer.device, OP, problem) as case:
        case.upload(make_inputs(OP, problem, "uniform"))
        gpu_benchmark.run_case(case, open_kernel(kernel), mode)
