"""The building blocks that ops share (``ops/common``): 16-bit floats, division, fragments, tensor copies, wgmma, cluster barriers,
slopes of activations, dealing out of steps."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from .cuda_runtime import ROOT, Runtime
from .kernels import Kernels, build, kinds

SOURCE = Path(__file__).with_name("blocks.cu")
NO_WAIT, NO_PUBLISH, NO_ARRIVAL = 1, 2, 3
ACTIVATIONS = ("none", "relu", "gelu_tanh", "gelu_erf", "silu")


@pytest.fixture(scope="session")
def blocks_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(SOURCE, tmp_path_factory.mktemp("blocks"), ("-O3", "-lineinfo", f"-I{ROOT / 'ops'}"))


@pytest.fixture
def kernels(emulator: Runtime, blocks_library: Path) -> Kernels:
    return Kernels(emulator, blocks_library)


def _draw(*shape: int) -> NDArray[Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(ml_dtypes.bfloat16)


def _bits(values: NDArray[Any]) -> NDArray[np.uint16]:
    return np.ascontiguousarray(values).view(np.uint16)


def _wide(values: NDArray[Any]) -> NDArray[np.float64]:
    return values.astype(np.float64)


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 64, 641, 65536, 1234567, 2**30, 2**31 - 1])
def test_divisor_gives_exact_quotients(kernels: Kernels, divisor: int) -> None:
    rng = np.random.default_rng(divisor)
    edges = [q * divisor + d for q in (0, 1, 2, (2**31 - 1) // divisor) for d in (-1, 0, 1)]
    values = np.array([v for v in edges if 0 <= v < 2**31] + list(rng.integers(0, 2**31, 500)), np.int32)
    results, reports = kernels.run("divide", values, len(values), divisor, np.zeros_like(values))
    assert not reports
    np.testing.assert_array_equal(results[1], values // divisor)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_conversions_round_as_ieee_754_does(kernels: Kernels, dtype: Any) -> None:
    patterns = np.arange(65536, dtype=np.uint16).view(dtype)
    rng = np.random.default_rng(1)
    floats = rng.integers(0, 2**32, 65536, dtype=np.uint64).astype(np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        between = np.nextafter(patterns.astype(np.float32)[::2], np.float32(0))
        floats[::2] = between
        results, reports = kernels.run(
            "convert", floats, np.zeros(32768, np.uint32), np.zeros(65536, np.float32), int(dtype is not np.float16)
        )
        assert not reports
        rounded, widened = results[1].view(dtype), results[2]
        np.testing.assert_array_equal(widened, patterns.astype(np.float32))
        np.testing.assert_array_equal(rounded.astype(np.float32), floats.astype(dtype).astype(np.float32))


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_rough_activations_keep_their_bound(kernels: Kernels, act: str) -> None:
    x = np.concatenate([np.linspace(-30, 30, 20001), np.geomspace(1e-30, 1e30, 500), -np.geomspace(1e-30, 1e30, 500)]).astype(np.float32)
    wide = x.astype(np.float64)
    exact = {
        "none": wide,
        "relu": np.maximum(wide, 0),
        "gelu_tanh": 0.5 * wide * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3))),
        "gelu_erf": 0.5 * wide * np.array([math.erfc(-v / math.sqrt(2)) for v in wide]),
        "silu": wide / (1 + np.exp(-np.maximum(wide, -700))),
    }[act]
    results, reports = kernels.run("activate", x, np.zeros_like(x), len(x), ACTIVATIONS.index(act))
    assert not reports
    bound = 0.0 if act in ("none", "relu") else 3 * 2.0**-13
    assert (np.abs(results[1] - exact) <= bound * np.abs(wide)).all()


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_rough_activations_of_what_is_not_finite(kernels: Kernels, act: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf], np.float32)
    results, _ = kernels.run("activate", x, np.zeros_like(x), 3, ACTIVATIONS.index(act))
    of_minus_infinity = {"none": -np.inf, "relu": 0.0}.get(act, np.nan)
    np.testing.assert_array_equal(results[1], np.array([np.nan, np.inf, of_minus_infinity], np.float32))


def _find_slope(act: str, x: NDArray[np.float64]) -> NDArray[np.float64]:
    x = np.clip(x, -40.0, 40.0)
    if act == "silu":
        s = 1 / (1 + np.exp(-x))
        return np.asarray(s * (1 + x * (1 - s)))
    if act == "gelu_tanh":
        u = math.sqrt(2 / math.pi)
        t = np.tanh(u * (x + 0.044715 * x**3))
        return np.asarray(0.5 * (1 + t) + 0.5 * x * (1 - t * t) * u * (1 + 3 * 0.044715 * x * x))
    bell = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return np.asarray(np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x]) + x * bell)


@pytest.mark.parametrize("act", ACTIVATIONS[2:])
def test_slopes_keep_their_bound(kernels: Kernels, act: str) -> None:
    x = np.concatenate([np.linspace(-45, 45, 30001), np.geomspace(1e-38, 3e38, 500), -np.geomspace(1e-38, 3e38, 500)]).astype(np.float32)
    results, reports = kernels.run("pass", np.ones_like(x), x, np.zeros_like(x), len(x), ACTIVATIONS.index(act))
    assert not reports
    assert np.abs(results[2] - _find_slope(act, x.astype(np.float64))).max() <= 2.0**-18


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_gradients_pass_at_the_limits(kernels: Kernels, act: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, -1.0], np.float32)
    gradients = np.array([2, 2, 2, 2, 2, np.inf], np.float32)
    results, _ = kernels.run("pass", gradients, x, np.zeros_like(x), len(x), ACTIVATIONS.index(act))
    if act == "none":
        np.testing.assert_array_equal(results[2], gradients)
    elif act == "relu":
        # It selects: no gradient at 0, and an infinite one is gone where the slope is 0.
        np.testing.assert_array_equal(results[2], np.array([2, 2, 0, 0, 0, 0], np.float32))
    else:
        assert np.isnan(results[2][0]) and np.isinf(results[2][5])
        np.testing.assert_allclose(results[2][1:5], [2, 0, 1, 1], atol=2.0**-17)


# Tiles are 128 x 64 and 64 deep; clusters as many as run at a time.
@pytest.mark.parametrize(
    ("m", "n", "k", "clusters", "is_split"),
    [
        (128, 64, 64 * 300, 7, True),  # one tile among all
        (300, 200, 64 * 100, 5, True),  # two waves and a half
        (1000, 500, 64 * 60, 6, True),  # whole waves too
        (256, 64, 64 * 90, 11, True),  # ranges inside a tile
        (128, 64, 64 * 20, 2, False),  # joining would cost more
        (512, 64, 64 * 100, 4, False),  # one wave to the brim
        (100, 30, 5, 8, False),
    ],
)
def test_dealt_out_steps_are_all_steps_once(kernels: Kernels, m: int, n: int, k: int, clusters: int, is_split: bool) -> None:
    results, reports = kernels.run("works", m, n, k, clusters, np.zeros((clusters, 64, 4), np.int32))
    assert not reports
    rows, columns, steps = -(-m // 128), -(-n // 64), -(-k // 64)
    times = np.zeros((rows, columns, steps), np.int32)
    owners = -np.ones((rows, columns, steps), np.int32)
    shares = []
    for cluster, works in enumerate(results[0]):
        used = works[works[:, 3] > 0]
        shares.append(int(used[:, 3].sum()))
        fronts = [i for i, (_, _, first, count) in enumerate(used) if first + count < steps]
        assert fronts in ([], [0])  # what others wait for comes first
        for row, column, first, count in used:
            times[row // 128, column // 64, first : first + count] += 1
            owners[row // 128, column // 64, first : first + count] = cluster
    assert (times == 1).all()
    # A cluster waits for lower ones alone.
    assert (np.diff(owners, axis=2) >= 0).all()
    assert (len({tuple(np.unique(o)) for o in owners.reshape(-1, steps) if len(np.unique(o)) > 1}) > 0) == is_split
    if is_split:
        assert max(shares) - min(shares) <= 1


# On 132 multiprocessors, of D's columns.
@pytest.mark.parametrize(
    ("m", "n", "k", "is_wide", "columns", "tiles"),
    [
        (6144, 261, 2560, 1, 136, 96),  # as few tiles, without padding
        (1024, 1285, 6144, 0, 88, 120),  # more and smaller ones in the one wave
        (12288, 7615, 2560, 1, 208, 3552),  # many waves: what a step's rows cost is had for the most columns
        (128, 40, 640, 0, 56, 1),  # the main loop has no fewer
        (128, 112, 640, 0, 56, 2),  # two multiprocessors take half as long
        (16896, 112, 640, 0, 112, 132),
    ],
)
def test_tiles_have_the_columns_that_take_the_least_time(
    kernels: Kernels, m: int, n: int, k: int, is_wide: int, columns: int, tiles: int
) -> None:
    results, reports = kernels.run("evenly", m, n, k, 132, is_wide, np.zeros(3, np.int32))
    assert not reports and results[0].tolist() == [columns, tiles, 0]


@pytest.mark.parametrize("is_transposed", [0, 1])
def test_warp_fragments(kernels: Kernels, is_transposed: int) -> None:
    a, b = _draw(16, 16), _draw(16, 16)[::-1]
    results, reports = kernels.run("mma", _bits(a), _bits(b), np.zeros((16, 16), np.float32), np.zeros((16, 16), np.uint16), is_transposed)
    assert not reports
    exact = _wide(a) @ (_wide(b) if is_transposed else _wide(b).T)
    assert np.abs(results[2] - exact).max() <= 1e-5
    np.testing.assert_array_equal(results[3].view(ml_dtypes.bfloat16), results[2].astype(ml_dtypes.bfloat16))


def _run_wgmma(kernels: Kernels, fault: int, *, ta: int = 0, tb: int = 0, rows: int = 64, columns: int = 64) -> tuple[Any, Any, Any]:
    a, b = _draw(64, 64), _draw(64, 64)[::-1]
    results, reports = kernels.run("wgmma", _bits(a), _bits(b), np.zeros((rows, columns), np.uint16), rows, columns, ta, tb, fault)
    exact = (_wide(a).T if ta else _wide(a)) @ (_wide(b) if tb else _wide(b).T)
    return _wide(results[2].view(ml_dtypes.bfloat16)) if results else None, exact[:rows, :columns], reports


@pytest.mark.parametrize(("ta", "tb"), [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (37, 24)])
def test_boxes_through_wgmma_and_back(kernels: Kernels, ta: int, tb: int, rows: int, columns: int) -> None:
    product, exact, reports = _run_wgmma(kernels, 0, ta=ta, tb=tb, rows=rows, columns=columns)
    assert not reports
    assert (np.abs(product - exact) <= 2.0**-8 * np.abs(exact) + 1e-4).all()


def test_boxes_that_nobody_waits_for_are_found(kernels: Kernels) -> None:
    assert "async_copy_in_flight" in kinds(_run_wgmma(kernels, NO_WAIT)[2])


def test_stores_that_were_not_published_are_found(kernels: Kernels) -> None:
    assert "missing_proxy_fence" in kinds(_run_wgmma(kernels, NO_PUBLISH)[2])


def _run_multicast(kernels: Kernels, rounds: int, fault: int) -> tuple[Any, Any, Any]:
    values = np.random.default_rng(rounds).integers(-8, 8, (2 * rounds, 64)).astype(np.float32)
    results, reports = kernels.run("multicast", values, np.zeros((2, 32), np.float32), rounds, fault)
    total = values.sum(axis=0)
    return results[1] if results else None, total[:32] + total[32:], reports


def test_a_box_is_shared_by_a_cluster(kernels: Kernels) -> None:
    sums, expected, reports = _run_multicast(kernels, 5, 0)
    assert not reports
    np.testing.assert_array_equal(sums, [expected, expected])


def test_a_slot_that_is_filled_again_too_early_is_found(kernels: Kernels) -> None:
    _, _, reports = _run_multicast(kernels, 5, NO_ARRIVAL)
    assert reports
