"""Kernels with tensor-core instructions against NumPy, under every check with no finding; and with planted faults, each found."""

from __future__ import annotations

import json
from ctypes import c_int, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from .cuda_runtime import Runtime
from .kernels import Kernels, build, kinds

SOURCE = Path(__file__).with_name("tensor_kernels.cu")
NO_FENCE, NO_WAIT, OVERWRITTEN, NO_PROXY_FENCE, WARP_MISSING, PART_OF_TILE, OUTSIDE, WRITTEN_AFTER_FENCE = range(1, 9)


@pytest.fixture(scope="session")
def tensor_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(SOURCE, tmp_path_factory.mktemp("tensor_kernels"))


@pytest.fixture
def kernels(emulator: Runtime, tensor_library: Path) -> Kernels:
    return Kernels(emulator, tensor_library)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def from_bf16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def run_gemm(
    kernels: Kernels, rng: np.random.Generator, name: str, shape: tuple[int, int, int], fault: int = 0
) -> tuple[NDArray[np.float64] | None, list[dict[str, Any]]]:
    """Return the error of C relative to its size (None where the launch failed), and the reports."""
    m, n, k = shape
    a, b = (to_bf16(rng.standard_normal((rows, k), np.float32)) for rows in (m, n))
    results, reports = kernels.run(name, a, b, np.full((m, n), np.nan, np.float32), m, n, k, fault)
    if not results:
        return None, reports
    want = from_bf16(a).astype(np.float64) @ from_bf16(b).T.astype(np.float64)
    return np.abs(results[2] - want) / np.sqrt(k), reports


@pytest.mark.parametrize("schedule", ["default", "reversed", "random"])
@pytest.mark.parametrize("name", ["mma_gemm", "wgmma_gemm", "pipelined_gemm"])
def test_gemm(kernels: Kernels, rng: np.random.Generator, name: str, schedule: str) -> None:
    with kernels.options(schedule=schedule, seed=5):
        error, reports = run_gemm(kernels, rng, name, (256, 128, 192))
    assert not reports
    assert error is not None and error.max() < 1e-5


@pytest.mark.parametrize("name", ["mma_gemm", "wgmma_gemm", "pipelined_gemm"])
def test_gemm_without_checks_gives_the_same_bits(kernels: Kernels, rng: np.random.Generator, name: str) -> None:
    a, b = (to_bf16(rng.standard_normal((128, 64), np.float32)) for _ in range(2))
    c = np.zeros((128, 128), np.float32)
    checked, unchecked = (kernels.run(name, a, b, c, 128, 128, 64, 0, checks=checks)[0][2] for checks in ("all", "none"))
    assert np.array_equal(checked, unchecked)


def test_counters_of_tensor_instructions(kernels: Kernels, rng: np.random.Generator) -> None:
    a, b = (to_bf16(rng.standard_normal((128, 64), np.float32)) for _ in range(2))
    for name, instructions in (("mma_gemm", 128 * 128 * 64 // (16 * 8 * 16)), ("wgmma_gemm", 8 * 4), ("pipelined_gemm", 8 * 4)):
        kernels.cuda.library.aicfEmulatorTakeCounters()
        with kernels.options(counters=1):
            kernels.run(name, a, b, np.zeros((128, 128), np.float32), 128, 128, 64, 0)
        (launch,) = json.loads(kernels.cuda.library.aicfEmulatorTakeCounters())
        counters = launch["counts"]
        assert counters["tensor"] == instructions and counters["tensor_flops_bf16"] == 2 * 128 * 128 * 64
        if name == "mma_gemm":
            assert counters["matrix_loads"] == 8 * 4 * 6  # warps, depth / 16, ldmatrix.x4
            assert counters["shared_load_conflicts"] == 0


@pytest.mark.parametrize(("fault", "kind"), [(1, "async_copy_in_flight"), (2, "shared_race"), (3, "shared_race")])
def test_mma_gemm_with_a_fault(kernels: Kernels, rng: np.random.Generator, fault: int, kind: str) -> None:
    _, reports = run_gemm(kernels, rng, "mma_gemm", (128, 128, 128), fault)
    assert kind in kinds(reports)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (NO_FENCE, "wgmma_missing_fence"),
        (NO_WAIT, "wgmma_register_hazard"),
        (OVERWRITTEN, "wgmma_operand_overwritten"),
        (NO_PROXY_FENCE, "missing_proxy_fence"),
        (WARP_MISSING, "wgmma_divergent_warpgroup"),
        (PART_OF_TILE, "uninitialized_read"),
        (OUTSIDE, "out_of_bounds_read"),
        (WRITTEN_AFTER_FENCE, "wgmma_missing_fence"),
    ],
)
def test_wgmma_gemm_with_a_fault(kernels: Kernels, rng: np.random.Generator, fault: int, kind: str) -> None:
    _, reports = run_gemm(kernels, rng, "wgmma_gemm", (128, 128, 128), fault)
    assert kinds(reports) == {kind}
    assert all(str(report["source"]).startswith("tensor_kernels.cu:") for report in reports)


@pytest.mark.parametrize(("fault", "kind"), [(1, "shared_race"), (2, "async_copy_in_flight"), (3, "wgmma_operand_overwritten")])
def test_pipelined_gemm_with_a_fault(kernels: Kernels, rng: np.random.Generator, fault: int, kind: str) -> None:
    """The producer does not wait for a free stage; the consumers do not wait for their tiles; or they release one too early."""
    with kernels.options(instruction_limit=1_000_000):
        _, reports = run_gemm(kernels, rng, "pipelined_gemm", (128, 128, 512), fault)
    assert kind in kinds(reports)


def test_a_stage_released_before_its_multiplication_is_done_changes_the_result(kernels: Kernels, rng: np.random.Generator) -> None:
    error, _ = run_gemm(kernels, rng, "pipelined_gemm", (128, 128, 512), 3)
    assert error is not None and not error.max() < 1e-2


def test_operands_overwritten_before_the_wait_change_the_result(kernels: Kernels, rng: np.random.Generator) -> None:
    error, _ = run_gemm(kernels, rng, "wgmma_gemm", (128, 128, 128), OVERWRITTEN)
    assert error is not None and not error.max() < 1e-2


WMMA = [  # m, n, k, factors, accumulators, A row-major, B row-major
    (16, 16, 16, "f2", np.float32, True, False),
    (32, 8, 16, "f2", np.float32, False, True),
    (8, 32, 16, "f2", np.float16, True, True),
    (16, 16, 16, "bf16", np.float32, False, False),
    (16, 16, 16, "i1", np.int32, True, False),
    (8, 32, 16, "u1", np.int32, False, True),
    (16, 16, 8, "f4", np.float32, True, True),
    (8, 8, 4, "f8", np.float64, True, False),
]


@pytest.mark.parametrize("column_major", [0, 1])
@pytest.mark.parametrize("which", range(len(WMMA)))
def test_wmma(kernels: Kernels, rng: np.random.Generator, which: int, column_major: int) -> None:
    m, n, k, kind, accumulator, a_row, b_row = WMMA[which]

    def draw(rows: int, columns: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the numbers and how the device has them; few bits, so that every sum is exact."""
        if kind in ("i1", "u1"):
            cells = rng.integers(-100 if kind == "i1" else 0, 100, (rows, columns)).astype(kind)
            return cells, cells
        values = (rng.integers(-16, 16, (rows, columns)) / 4).astype(np.float32)
        return values, to_bf16(values) if kind == "bf16" else values.astype(kind)

    a, raw_a = draw(m, k)
    b, raw_b = draw(k, n)
    c = rng.integers(-50, 50, (m, n)).astype(accumulator)
    laid_a, laid_b, laid_c = (
        np.ascontiguousarray(x if is_row else x.T) for x, is_row in ((raw_a, a_row), (raw_b, b_row), (c, not column_major))
    )
    (_, _, out), reports = kernels.run("wmma", laid_a, laid_b, laid_c, which, column_major)
    assert not reports
    want = 2 * (a.astype(np.float64) @ b.astype(np.float64)) + c
    assert np.array_equal(out.T if column_major else out, want.astype(accumulator))


@pytest.mark.parametrize("number", [1, 2, 4])
def test_matrices_move_as_the_isa_says(kernels: Kernels, rng: np.random.Generator, number: int) -> None:
    cells = rng.integers(0, 2**16, (number, 8, 8), np.uint16)
    (_, out, registers), reports = kernels.run("matrices", cells, np.zeros_like(cells), np.zeros((number, 32), np.uint32), number, 0)
    assert not reports
    turned = np.ascontiguousarray(cells.transpose(0, 2, 1))
    # Lane 4 r + c holds elements 2 c and 2 c + 1 of row r; with .trans, of column r.
    held = turned if number == 4 else cells
    assert np.array_equal(registers, held.reshape(number, 32, 2).astype(np.uint32) @ np.array([1, 1 << 16], np.uint32))
    assert np.array_equal(out, turned)  # by ldmatrix.trans, stmatrix.trans or movmatrix


def test_ldmatrix_of_a_row_that_is_not_aligned(kernels: Kernels) -> None:
    cells = np.zeros((1, 8, 8), np.uint16)
    _, reports = kernels.run("matrices", cells, cells.copy(), np.zeros((1, 32), np.uint32), 1, 8)
    assert "misaligned_access" in kinds(reports)


def test_mma_makes_undefined_what_depends_on_an_unwritten_value(kernels: Kernels) -> None:
    """Row 5 of A is not written. Nothing is reported while row 5 of C stays unused."""
    a, b = np.ones((16, 16), np.uint16), np.ones((8, 16), np.uint16)
    for first, last, found in ((0, 5, set()), (6, 16, set()), (4, 6, {"uninitialized_read"})):
        _, reports = kernels.run("rows_of_mma", a, b, np.zeros((16, 8), np.float32), 5, first, last)
        assert kinds(reports) == found


def test_ldmatrix_of_a_row_that_nothing_wrote(kernels: Kernels) -> None:
    cells = np.zeros((1, 8, 8), np.uint16)
    _, reports = kernels.run("matrices", cells, cells.copy(), np.zeros((1, 32), np.uint32), 1, 16)
    assert kinds(reports) == {"uninitialized_read"}


def test_a_large_gemm_is_quick(kernels: Kernels) -> None:
    """1024 cubed takes well below the second that is allowed for; the bound leaves room for a busy machine."""
    cuda = kernels.cuda
    a, b, c = (cuda.alloc(np.full((512, 512), value, np.uint16)) for value in (0x3F80, 0x3F80, 0))
    c = cuda.alloc(np.zeros((512, 512), np.float32))
    with kernels.options(checks="all"):
        for name in ("mma_gemm", "wgmma_gemm", "pipelined_gemm"):
            getattr(kernels.library, f"run_{name}")(*(c_void_p(p) for p in (a, b, c)), *(c_int(v) for v in (512, 512, 512, 0)))
            assert cuda.code("cudaDeviceSynchronize") == 0
            assert np.all(cuda.read(c, 512 * 512, np.float32) == 512)
