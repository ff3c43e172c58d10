"""Accuracy of every kernel of embedding over the op's own problems, its gradient, wrong indices, and a liar that only these give away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from device import Device
from device.interface import DeviceError
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
BENCH = OP.select_problems("bench")

Open = Callable[[str], Launchable]
Thin = Callable[[Effort], Effort]


@pytest.fixture(scope="module")
def open_kernel(device: Device) -> Open:
    open_variant = UNDER_TEST.open(VARIANTS.values())
    return lambda kernel: open_variant(VARIANTS[kernel])


def _make_problem(count: int, vocabulary: int, width: int, *, has_status: bool = True) -> Problem:
    return Problem({"count": count, "vocabulary": vocabulary, "width": width}, {"with_status": has_status})


def _make_inputs(indices: NDArray[Any], table: NDArray[Any], *, has_status: bool = True) -> dict[str, NDArray[Any]]:
    found: dict[str, NDArray[Any]] = {"indices": indices.astype(np.int64), "table": table}
    return found | ({"status": np.array(5, np.int32)} if has_status else {})


@pytest.mark.parametrize("kernel", VARIANTS)
def test_kernel_verifies_on_every_problem(device: Device, open_kernel: Open, kernel: str, thin: Thin) -> None:
    problems = UNDER_TEST.verify(device, VARIANTS[kernel], open_kernel(kernel), thin(Effort(num_hidden=2)))
    assert all(p.status == "passed" for p in problems)


@pytest.mark.parametrize("kernel", VARIANTS)
@pytest.mark.parametrize("width", [3, 8, 300])
def test_every_bit_arrives(device: Device, open_kernel: Open, kernel: str, width: int) -> None:
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 2**32, (19, width), dtype=np.uint32)  # NaN payloads and subnormals among them
    indices = rng.integers(0, 19, 41)
    inputs = _make_inputs(indices, bits.view(np.float32))
    found = UNDER_TEST.launch(device, open_kernel(kernel), _make_problem(41, 19, width), inputs)
    np.testing.assert_array_equal(found["y"].view(np.uint32), bits[indices])
    assert found["status"] == 5


@pytest.mark.parametrize("kernel", VARIANTS)
def test_wrong_indices_are_counted_once_and_read_nothing(device: Device, open_kernel: Open, kernel: str) -> None:
    table = np.arange(7 * 70, dtype=np.float32).reshape(7, 70)
    indices = np.array([0, 7, 6, -1, 2**62, -(2**63), 3])
    found = UNDER_TEST.launch(device, open_kernel(kernel), _make_problem(7, 7, 70), _make_inputs(indices, table))
    is_wrong = (indices < 0) | (indices > 6)
    assert found["status"] == 5 + 4
    assert np.isnan(found["y"][is_wrong]).all()
    np.testing.assert_array_equal(found["y"][~is_wrong], table[indices[~is_wrong]])


@pytest.mark.parametrize("kernel", VARIANTS)
def test_a_wrong_index_without_a_status_is_a_finding(device: Device, open_kernel: Open, kernel: str) -> None:
    if device.observer is None:
        pytest.skip("a launch that ends with an error takes a real device's context with it")
    table, indices = np.ones((7, 70), np.float32), np.array([0, 6, 7])
    problem = OP.complete(_make_problem(3, 7, 70, has_status=False))
    device.observer.take_reports()
    with Case(device, OP, problem) as case:
        case.upload(_make_inputs(indices, table, has_status=False))
        case.prepare(open_kernel(kernel))
        case.launch(open_kernel(kernel), device.create_stream(non_blocking=True))
        with pytest.raises(DeviceError):
            device.synchronize()
        reports = device.observer.take_reports()
        device.observer.clear_error()
    assert [r.kind for r in reports] == ["trap"]
    assert "indices.cuh" in reports[0].text


def test_the_gradient_is_the_slope_of_the_reference() -> None:
    backward = OpUnderTest(Path(__file__).parent.parent / "embedding_backward").op
    rng = np.random.default_rng(4)
    indices, table, dy = rng.integers(0, 6, 20), rng.standard_normal((6, 5)), rng.standard_normal((20, 5))
    sizes = {"count": 20, "vocabulary": 6, "width": 5}
    slopes = backward.reference({"dy": dy, "indices": indices}, Problem(sizes, {"with_status": False}))["dtable"]
    for place in ((0, 0), (3, 4), (5, 2)):
        step = np.zeros_like(table)
        step[place] = 1e-6
        problem = Problem(sizes, {"with_status": False})
        ends = [(OP.reference({"table": table + s * step, "indices": indices}, problem)["y"] * dy).sum() for s in (1, -1)]
        assert slopes[place] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6, abs=1e-8)


@pytest.mark.slow
def test_a_kernel_that_reads_a_row_for_a_wrong_index_is_refused(device: Device, tmp_path: Path) -> None:
    liar = UNDER_TEST.patch(tmp_path, "common/indices.cuh", "return -1;", "return 0;")
    variant = VARIANTS["naive"]
    result = Verifier(liar.op, device, Effort(num_hidden=0)).verify(variant, liar.open([variant])(variant))
    refused = {p.problem for p in result.problems if p.faults}
    with_status = {p.name: p for p in OP.select_problems("verify") if p.attributes["with_status"]}
    assert {name for name, p in with_status.items() if p.sizes["count"] > 30} <= refused <= set(with_status)
    assert {fault.kind.value for fault in result.all_faults} == {"mismatch"}


def test_what_is_timed_has_no_wrong_index_and_what_is_proved_has() -> None:
    problem = next(p for p in OP.select_problems("verify") if p.attributes.get("with_status") and p.sizes["count"] > 100)
    timed, proved = (make_inputs(OP, problem, d)["indices"].astype(np.int64) for d in ("uniform", "normal"))
    assert ((timed >= 0) & (timed < problem.sizes["vocabulary"])).all()
    assert (proved < 0).any() and (proved >= problem.sizes["vocabulary"]).any()


@pytest.mark.parametrize(
    ("count", "width", "padding", "expected"),
    [
        (2361, 512, 0, "flat/threads128_items1"),
        (2361, 512, 1, "row_groups/threads32_rows4"),
        (1000, 512, 1, "flat/threads128_items1"),
        (2361, 37, 0, "flat/threads128_items1"),
        (23610, 37, 0, "flat/threads256_items2"),
        (23610, 37, 1, "row_groups/threads8_rows16"),
        (32095, 4096, 0, "row_groups/threads32_rows4"),
        (1 << 20, 16, 0, "flat/threads256_items2"),
        (1, 1, 0, "flat/threads128_items1"),
    ],
)
def test_what_is_chosen_follows_from_where_rows_begin_and_how_many_accesses_there_are(
    count: int, width: int, padding: int, expected: str
) -> None:
    assert OP.choose is not None
    problem = Problem({"count": count, "vocabulary": 50257, "width": width}, {"dtype": "float16"}, {"y": padding})
    assert OP.choose(problem).variant.name == expected


@pytest.mark.gpu
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("problem", BENCH, ids=[p.name for p in BENCH])
@pytest.mark.parametrize("kernel", VARIANTS)
def test_speed(gpu_benchmark: GpuBenchmark, open_kernel: Open, kernel: str, problem: Problem, mode: Mode) -> None:
    with Case(gpu_benchmark.timer.device, OP, problem) as case:
        case.upload(make_inputs(OP, problem, "uniform"))
        gpu_benchmark.run_case(case, open_kernel(kernel), mode)
