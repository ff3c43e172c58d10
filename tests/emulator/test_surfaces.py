"""Surface instructions and queries that CUDA C++ has no functions for, by inline PTX, against a model of the ISA's text."""

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
from .ptx_kernels import refusal, text_of

FOLDER = Path(__file__).with_name("textures")
sys.path[:0] = [str(FOLDER), str(FOLDER.with_name("opcodes"))]
import texture_corpus as corpus  # noqa: E402
import texture_record as record  # noqa: E402

SURFACES = corpus.make_surfaces()
WIDTH, HEIGHT = corpus.SURFACE_WIDTH, corpus.SURFACE_HEIGHT


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_once(tmp_path_factory, "texture_cases", lambda folder: build(FOLDER / "cases.cu", folder)) / "cases.so"


def _place(x: int, y: int, mode: str) -> tuple[int, int] | None:
    """The texel that is reached; None where nothing is."""
    if mode == "clamp":
        return min(max(x, 0), WIDTH - 1), min(max(y, 0), HEIGHT - 1)
    return (x, y) if 0 <= x < WIDTH and 0 <= y < HEIGHT else None


def _model(surface: Any) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """What loads give [points, 4], and the texels afterwards."""
    pixels, places, values = corpus.make_surface_inputs(surface)
    bits, channels, kind = surface.format
    texel = bits * channels // 8
    after = pixels.reshape(HEIGHT, WIDTH, texel).copy()
    out = np.zeros((corpus.SURFACE_POINTS, 4), np.uint32)
    is_formatted = "_p" in surface.kernel
    mode = "clamp" if "clamp" in surface.kernel or surface.kernel in ("store_p_one", "min_s32", "or_b32", "min_p") else "zero"
    for i, (x, y) in enumerate(places.tolist()):
        place = _place(x if is_formatted else x // texel, y, mode)
        cell = after[place[1], place[0]] if place else None
        if surface.kernel.startswith("load"):
            count = 4 if "v4" in surface.kernel else 1
            out[i, :count] = cell.view(np.uint32)[:count] if cell is not None else 0
        elif cell is None:
            continue
        elif is_formatted and surface.kernel.startswith("store"):
            given = values[i].copy()
            if surface.kernel == "store_p_one":
                given[1:] = 0
            cell[:] = _convert(given[:channels], bits, kind)
        elif surface.kernel.startswith("store"):
            raw = values[i].astype(f"u{bits // 8}") if bits < 32 else values[i]
            cell[:] = raw[:channels].view(np.uint8)
        else:
            dtype = np.int32 if surface.kernel == "min_s32" or (is_formatted and kind == 0) else np.uint32
            operation = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or}
            one = operation[surface.kernel.split("_")[0]](cell.view(dtype), values[i, :1].view(dtype))
            cell[:] = one.view(np.uint8)
    return out, after.reshape(-1)


def _convert(words: NDArray[np.uint32], bits: int, kind: int) -> NDArray[np.uint8]:
    if kind == corpus.FLOAT:
        single = words.view(np.float32)
        nearest = single.astype(f"f{bits // 8}")
        is_larger = np.abs(nearest.astype(np.float32)) > np.abs(single)  # an H200 cuts off
        return np.where(is_larger, np.nextafter(nearest, nearest.dtype.type(0)), nearest).view(np.uint8)
    if kind == corpus.SIGNED:
        limits = np.iinfo(f"i{bits // 8}")
        return np.clip(words.view(np.int32), limits.min, limits.max).astype(f"i{bits // 8}").view(np.uint8)
    return np.minimum(words, 2**bits - 1).astype(f"u{bits // 8}").view(np.uint8)


@pytest.mark.parametrize("surface", SURFACES, ids=[surface.name for surface in SURFACES])
def test_surface_instructions(emulator: Runtime, library: Path, surface: Any) -> None:
    out, after = _model(surface)
    got = record.run_surface(surface, CDLL(str(library)), emulator.library)
    assert not emulator.reports()
    assert np.array_equal(got[: out.size].reshape(out.shape), out)
    assert np.array_equal(got[out.size :].view(np.uint8), after)


@pytest.mark.parametrize(
    ("instruction", "reason"),
    [
        ("sured.b.add.2d.f32.trap [%rd1, {%r1, %r2}], %f1;", "its type"),
        ("sured.b.xor.2d.b32.trap [%rd1, {%r1, %r2}], %r3;", "'.xor'"),
        ("sured.b.add.2d.v2.u32.trap [%rd1, {%r1, %r2}], {%r3, %r3};", "its type"),
        ("sust.p.2d.v4.b16.trap [%rd1, {%r1, %r2}], {%h1, %h1, %h1, %h1};", "its type"),
        ("txq.channel_order.b32 %r1, [%rd1];", "query"),
        ("istypep.samplerref %p1, %rd1;", "sampler"),
    ],
)
def test_what_is_refused(emulator: Runtime, instruction: str, reason: str) -> None:
    assert reason in refusal(emulator, text_of(instruction))
