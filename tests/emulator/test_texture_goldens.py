"""Texture fetches and surface operations against what an H200 gave (``tests/goldens/textures.npz``).

What is read as it stands is equal; of filtered values the weights are, and the sum is to a unit in the last place. Where the emulated
device knows the rule only nearly, the test says how nearly (:func:`find_tolerance`).
"""

from __future__ import annotations

import sys
from ctypes import CDLL
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.sharing import make_once

from .cuda_runtime import Runtime
from .kernels import build

FOLDER = Path(__file__).with_name("textures")
sys.path[:0] = [str(FOLDER), str(FOLDER.with_name("opcodes"))]
import texture_corpus as corpus  # noqa: E402
import texture_record as record  # noqa: E402

GOLDENS = Path(__file__).parents[1] / "goldens/textures.npz"
CASES = corpus.make_corpus()
SURFACES = corpus.make_surfaces()
LAST_PLACE = 2.0**-22
A_WEIGHT = 1 / 256  # of the difference of two texels


@pytest.fixture(scope="module")
def goldens() -> dict[str, NDArray[np.uint32]]:
    """Recorded words by name."""
    with np.load(GOLDENS) as file:
        ends = np.cumsum(file["sizes"])
        parts = np.split(file["words"], ends[:-1])
        return {str(name): part for name, part in zip(file["names"], parts, strict=True)}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_once(tmp_path_factory, "texture_cases", lambda folder: build(FOLDER / "cases.cu", folder)) / "cases.so"


def find_tolerance(case: Any) -> float:
    """How far a value may be from the recorded one, as a part of the largest texel; 0: equal."""
    if case.srgb:  # a table of 8 significant bits, which is not known entry by entry
        return 2.0**-7
    if not case.linear or (case.operation == "fetch" and case.texel not in ("f32", "f32x4", "f16x2") and not case.normalized_read):
        return 0.0
    if case.geometry == "3d" or case.linear_mipmap:  # products of three fractions, of which some are rounded another way
        return 2 * A_WEIGHT
    if case.texel == "f16x2":
        return 2.0**-11
    return A_WEIGHT if case.normalized_read else LAST_PLACE


def _is_between_texels(case: Any) -> NDArray[np.bool_]:
    """Points that a rounding error away from a border of texels: a coordinate times a size that is no power of two."""
    points = corpus.make_points(case)[:, :2].astype(np.float64) * np.array(case.extent[:2])
    near = np.abs(points * 256 * 2 - np.round(points * 256 * 2)) < 1e-3
    return near.any(axis=1) if case.size == (13, 7, 0) else np.zeros(len(points), bool)


def describe_difference(case: Any, got: NDArray[np.uint32], want: NDArray[np.uint32]) -> str:
    """Say which points are out of tolerance; empty when none is."""
    tolerance = find_tolerance(case)
    is_value = corpus.TEXELS[case.texel][2] == corpus.FLOAT or case.normalized_read
    if is_value:
        largest = 20.0 if corpus.TEXELS[case.texel][2] == corpus.FLOAT else 1.0
        error = np.abs(got.view(np.float32).astype(np.float64) - want.view(np.float32))
        is_far = ~(error <= tolerance * largest) & (got != want)
        if case.operation == "gradient" and case.geometry not in ("1d", "layered 1d"):  # nearly the level of detail, no more
            return "" if np.median(error[:, 0]) <= 1.0 else f"median error {np.median(error[:, 0])}"
    else:
        is_far = got != want
    is_far[_is_between_texels(case)] = False
    wrong = np.argwhere(is_far)
    shown = ", ".join(f"{i} {got[tuple(i)]:#x} {want[tuple(i)]:#x}" for i in wrong[:4])
    return f"{len(wrong)} of {got.size} differ: {shown}" if len(wrong) else ""


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_fetches_agree_with_gpu(emulator: Runtime, library: Path, goldens: dict[str, NDArray[np.uint32]], case: Any) -> None:
    got = record.run_case(case, CDLL(str(library)), emulator.library)
    assert not describe_difference(case, got, goldens[case.name].reshape(got.shape))
    assert not [report for report in emulator.reports() if report["kind"] != "uninitialized_read"]


@pytest.mark.parametrize("surface", SURFACES, ids=[surface.name for surface in SURFACES])
def test_surfaces_agree_with_gpu(emulator: Runtime, library: Path, goldens: dict[str, NDArray[np.uint32]], surface: Any) -> None:
    assert np.array_equal(record.run_surface(surface, CDLL(str(library)), emulator.library), goldens[surface.name])


def test_comparison_tells_wrong_results(goldens: dict[str, NDArray[np.uint32]]) -> None:
    """A bit of a point fetch, a weight of a filtered one, the next level of a mipmapped one."""
    for case, factor in (
        (corpus.Case(), 1 + 2.0**-23),
        (corpus.Case(linear=True), 1 + 1 / 100),
        (next(c for c in CASES if c.linear_mipmap), 1.3),
    ):
        want = goldens[case.name].reshape(-1, 4)
        wrong = (want.view(np.float32) * np.float32(factor)).view(np.uint32)
        assert not describe_difference(case, want, want)
        assert describe_difference(case, wrong, want)
