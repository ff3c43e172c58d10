"""Accuracy of every kernel of softmax over the op's own problems, special values and masks, what softmax must keep to, and its binding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from device import Device
from harness.pytest_plugin import GpuBenchmark
from harness.spec import Launchable, Problem
from harness.spec.dtypes import find_dtype
from harness.testing import OpUnderTest
from harness.timing.batches import Mode
from harness.verify.case import Case
from harness.verify.inputs import make_inputs
from harness.verify.judge import Verifier
from harness.verify.plan import Effort

UNDER_TEST = OpUnderTest(Path(__file__).parent)
OP = UNDER_TEST.op
VARIANTS = {k.name: k.bind(k.variants[min(1, len(k.variants) - 1)]) for k in OP.kernels}
VARIANTS["row_in_team"] = OP.find_kernel("row_in_team").bind(OP.find_kernel("row_in_team").variants[0])
# Groups of a block as well as groups of a few lanes.
VARIANTS["row_in_registers"], VARIANTS["short_rows"] = (
    OP.find_kernel("row_in_registers").bind(tunables)
    for tunables in ({"threads": 256, "rows": 1, "vectors": 8}, {"threads": 4, "rows": 32, "vectors": 4})
)
VARIANTS["rows_in_run"] = OP.find_kernel("rows_in_run").bind({"threads": 8, "rows": 32, "vectors": 8})
# Those of fp32 too, in which what the tests draw has no rounding.
FLOAT_KERNELS = [k for k in VARIANTS if k != "half_row_in_shared"]
# Those that serve masks, and 16 bits too.
MASKED_KERNELS = [k for k in VARIANTS if k != "rows_in_warp"]
# Proved by the fast tests; the slow ones prove the others.
FAST_KERNELS = ("naive", "row_in_registers")
# What a kernel does not serve: rows longer than its threads hold, or shorter than a cluster has work for.
LIMITS = dict.fromkeys(("row_in_registers", "short_rows", "rows_in_run"), "must not exceed")
LIMITS |= {"cluster_online": "must be at least", "row_in_team": "must be at least"}
LIMITS |= {"rows_in_warp": ""}  # nor masks, nor 16 bits
BENCH = OP.select_problems("bench")

Open = Callable[[str], Launchable]
Thin = Callable[[Effort], Effort]


@pytest.fixture(scope="module")
def open_kernel(device: Device) -> Open:
    open_variant = UNDER_TEST.open(VARIANTS.values())
    return lambda kernel: open_variant(VARIANTS[kernel])


@pytest.mark.parametrize("kernel", VARIANTS)
def test_kernel_verifies_on_every_problem(device: Device, open_kernel: Open, kernel: str, thin: Thin) -> None:
    problems = UNDER_TEST.verify(device, VARIANTS[kernel], open_kernel(kernel), thin(Effort(num_hidden=2)))
    passed = [p for p in problems if p.status == "passed"]
    assert all(LIMITS.get(kernel, "served") in p.reason for p in problems if p not in passed)
    few = {"cluster_online": 4, "row_in_team": 4, "rows_in_warp": len(problems) / 4, "half_row_in_shared": len(problems) / 4}
    few["short_rows"] = sum(p.sizes["columns"] <= 64 for p in OP.select_problems("verify"))
    assert len(passed) >= few.get(kernel, len(problems) / 2)


def test_the_bound_is_none_that_zeros_pass(device: Device) -> None:
    assert Verifier(OP, device, Effort(num_hidden=4)).check_op() == ()


def _run(device: Device, variant: Launchable, x: NDArray[Any], inputs: dict[str, Any] | None = None, **attributes: Any) -> NDArray[Any]:
    problem = Problem({"rows": x.shape[0], "columns": x.shape[1]}, {"dtype": x.dtype.name, **attributes})
    return UNDER_TEST.launch(device, variant, problem, {"x": x, **(inputs or {})})["y"]


def _draw_coarse(rows: int, columns: int) -> NDArray[np.float32]:
    """Return values with few bits: sums of them with other such values, and their products with powers of two, are exact."""
    return np.asarray(np.random.default_rng(3).integers(-256, 257, (rows, columns)) / 64, np.float32)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("columns", [61, 64])
@pytest.mark.parametrize("kernel", FLOAT_KERNELS)
def test_a_shift_changes_no_bit_and_permuted_rows_permute(device: Device, open_kernel: Open, kernel: str, columns: int, log: bool) -> None:
    columns = UNDER_TEST.widen(VARIANTS[kernel], "columns", columns)
    x, order = _draw_coarse(37, columns), np.random.default_rng(4).permutation(37)
    y = _run(device, open_kernel(kernel), x, log=log)
    np.testing.assert_array_equal(_run(device, open_kernel(kernel), x + np.float32(8.0), log=log), y)
    # Where a row begins beside a boundary decides which thread adds up what: rows that all begin on one have the same bits anywhere.
    permuted = _run(device, open_kernel(kernel), x[order], log=log)
    np.testing.assert_allclose(permuted, y[order], rtol=0.0 if columns % 32 == 0 else 2e-6)
    scaled = _run(device, open_kernel(kernel), x * np.float32(4.0), {"scale": np.float32(0.25)}, log=log, with_scale=True)
    np.testing.assert_array_equal(scaled, y)
    weights = np.exp(y, dtype=np.float64) if log else y.astype(np.float64)
    assert np.abs(weights.sum(axis=1) - 1.0).max() <= columns * 2.0**-20


@pytest.mark.parametrize("kernel", MASKED_KERNELS)
def test_a_causal_mask_has_the_bits_of_the_boolean_one(device: Device, open_kernel: Open, kernel: str) -> None:
    columns = UNDER_TEST.widen(VARIANTS[kernel], "columns", 60)
    x, queries = _draw_coarse(50, columns).astype(find_dtype("bfloat16")), 23
    keep = np.arange(columns) <= np.arange(50)[:, np.newaxis] % queries
    causal = _run(device, open_kernel(kernel), x, {"queries": np.int64(queries)}, mask="causal")
    boolean = _run(device, open_kernel(kernel), x, {"keep": keep}, mask="boolean")
    np.testing.assert_array_equal(causal.view(np.uint16), boolean.view(np.uint16))
    assert not causal.astype(np.float32)[~keep].any() and (causal.astype(np.float32)[keep] > 0.0).all()


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("kernel", [k for k in FLOAT_KERNELS if k in MASKED_KERNELS])
def test_what_is_hidden_counts_nothing(device: Device, open_kernel: Open, kernel: str, log: bool) -> None:
    columns = UNDER_TEST.widen(VARIANTS[kernel], "columns", 50)
    x, keep = _draw_coarse(6, columns), np.random.default_rng(5).random((6, columns)) < 0.5
    keep[:, 0], keep[0] = True, False
    keep[1], x[1] = np.arange(columns) < 3, -np.inf
    wild = np.where(keep, x, np.resize(np.array([np.nan, np.inf, 3e38], np.float32), x.shape))
    wild[2, 0] = np.nan
    y = _run(device, open_kernel(kernel), wild, {"keep": keep}, mask="boolean", log=log)
    nothing = -np.inf if log else 0.0
    assert (y[:2] == nothing).all()  # a row that is all hidden, and one of which nothing finite is to be seen
    assert np.isnan(y[2]).all()
    assert (y[3:][~keep[3:]] == nothing).all()
    alone = [_run(device, open_kernel("naive"), x[i : i + 1, keep[i]], log=log)[0] for i in range(3, 6)]
    np.testing.assert_allclose(y[3:][keep[3:]], np.concatenate(alone), rtol=1e-5)


@pytest.mark.parametrize("columns", [5, 64, 1000])
@pytest.mark.parametrize("kernel", FLOAT_KERNELS)
def test_special_values(device: Device, open_kernel: Open, kernel: str, columns: int) -> None:
    if kernel in ("short_rows", "rows_in_run", "rows_in_warp") and columns > 256:
        pytest.skip("a row of 1000 does not fit so few lanes")
    columns = UNDER_TEST.widen(VARIANTS[kernel], "columns", columns)
    x = np.random.default_rng(2).standard_normal((7, columns)).astype(np.float32)
    x[0, :] = -np.inf
    x[1, : columns - 1] = -np.inf
    x[2, columns // 2] = -np.inf
    x[3, 0] = np.nan
    x[4, columns - 1] = np.inf
    x[5, :] = 3e38
    y = _run(device, open_kernel(kernel), x)
    assert np.isnan(y[[0, 3, 4]]).all()
    assert y[1, columns - 1] == 1.0 and not y[1, : columns - 1].any()
    assert y[2, columns // 2] == 0.0 and abs(float(y[2].sum(dtype=np.float64)) - 1.0) < 1e-5
    np.testing.assert_allclose(y[5], 1.0 / columns, rtol=1e-6)
    np.testing.assert_allclose(y[6], OP.reference({"x": x[6:]}, Problem({"rows": 1, "columns": columns}))["y"][0], rtol=1e-5)


@pytest.mark.parametrize("columns", [129, 50, 33])
@pytest.mark.parametrize("kernel", ["rows_in_run", "rows_in_warp"])
def test_rows_of_a_run_are_accessed_without_conflicts(device: Device, open_kernel: Open, kernel: str, columns: int) -> None:
    if device.observer is None:
        pytest.skip("conflicts are counted on the emulated device")
    with device.observer.observe((), counters=True):
        device.observer.take_counters()
        _run(device, open_kernel(kernel), _draw_coarse(100, columns))
        (counted,) = device.observer.take_counters()
    assert counted.counts["shared_load_wavefronts"] > 0
    assert counted.counts["shared_load_conflicts"] == counted.counts["shared_store_conflicts"] == 0


def test_binding_refuses_bad_arguments_by_name(device: Device, open_kernel: Open) -> None:
    supports = partial(open_kernel("naive").supports, scale=None, keep=None, queries=None, log=False, mask="none")
    x, y = (device.allocate(4096).view((4, 8), np.float32) for _ in range(2))
    with pytest.raises(ValueError, match=r"^y: expected shape \(4, 8\), got \(4, 7\)"):
        supports(x=x, y=device.allocate(4096).view((4, 7), np.float32))
    with pytest.raises(ValueError, match=r"^y: expected memory of its own, got an array that overlaps x"):
        supports(x=x, y=x)
    with pytest.raises(TypeError, match=r"^x: expected a device array .* got NoneType"):
        supports(x=None, y=y)
    assert supports(x=x, y=y) == ""


@pytest.mark.slow  # a liar is compiled and proved
def test_a_mask_that_shows_one_column_too_many_is_refused(device: Device, tmp_path: Path) -> None:
    liar = UNDER_TEST.patch(
        tmp_path, "softmax/kernels.cu", "visible = static_cast<int>(last) + 1;", "visible = static_cast<int>(last) + 2;"
    )
    variant = VARIANTS["naive"]
    result = Verifier(liar.op, device, Effort(num_hidden=0)).verify(variant, liar.open([variant])(variant))
    refused = {p.problem for p in result.problems if p.faults}
    assert refused == {p.name for p in OP.select_problems("verify") if p.attributes.get("mask") == "causal"}
    assert "mismatch" in {fault.kind.value for fault in result.all_faults}


@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "variant"),
    [
        (134189, 72, "float16", "row_in_registers/threads4_rows32_vectors8"),
        (4658, 524, "float16", "row_in_registers/threads32_rows4_vectors8"),
        (100, 524, "float16", "row_in_registers/threads128_rows1_vectors2"),
        (21471, 319, "float16", "row_in_registers/threads16_rows8_vectors8"),
        (16, 19159, "float16", "row_in_team/threads512_team8_vectors8"),
        (16, 12000, "float16", "row_in_registers/threads1024_rows1_vectors4"),
        (82, 32000, "float32", "row_in_shared/threads1024"),
        (437, 32000, "bfloat16", "row_in_shared/threads512"),
        (143, 55930, "float32", "row_in_team/threads512_team4_vectors8"),
        (321, 50304, "float16", "row_in_team/threads512_team4_vectors8"),
        (321, 300000, "float32", "block_online/threads256"),
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
    if kernel == "short_rows" and problem.sizes["columns"] > 64:
        pytest.skip("a row must fit 4 lanes")
    with Case(gpu_benchmark.timer.device, OP, problem) as case:
        case.upload(make_inputs(OP, problem, "uniform"))
        gpu_benchmark.run_case(case, open_kernel(kernel), mode)
