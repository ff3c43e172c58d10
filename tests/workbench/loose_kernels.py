"""Kernels in the form of Kernel Tuner's CUDA examples, with their tunables, as loose kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.workbench import In, Out, Size

FOLDER = Path(__file__).parent / "kernels"
Array = NDArray[np.float64]


def convolve(input: Array, filter: Array, height: int, width: int) -> Array:  # noqa: A002 - the kernel's names
    windows = np.lib.stride_tricks.sliding_window_view(input, filter.shape)
    return np.asarray(np.einsum("hwij,ij->hw", windows, filter))


def multiply(a: Array, b: Array) -> Array:
    return a @ b


VECTOR_ADD: dict[str, Any] = {
    "source": FOLDER / "vector_add.cu",
    "name": "vector_add",
    "sizes": {"n": 1 << 20},
    "arguments": {"c": Out("n"), "a": In("n"), "b": In("n"), "n": Size()},
    "tunables": {"block_size_x": [64, 256], "is_guarded": [1, 0]},
    "grid": lambda n, block_size_x: -(-n // block_size_x),
    "block": "block_size_x",
    "reference": lambda a, b: a + b,
    "restrictions": lambda p: p["is_guarded"] or p["block_size_x"] == 64,
}
CONVOLUTION: dict[str, Any] = {
    "source": FOLDER / "convolution.cu",
    "name": "convolution",
    "sizes": {"height": 1024, "width": 1024},
    "arguments": {
        "output": Out("height", "width"),
        "input": In("height + 4", "width + 4"),
        "filter": In(5, 5),
        "height": Size(),
        "width": Size(),
    },
    "tunables": {"block_size_x": [16, 32], "block_size_y": [4, 8], "tile_size_x": [1, 2], "tile_size_y": [1], "use_padding": [0, 1]},
    "grid": ("ceil_div(width, block_size_x * tile_size_x)", "ceil_div(height, block_size_y * tile_size_y)"),
    "block": ("block_size_x", "block_size_y"),
    "reference": convolve,
    "restrictions": ["block_size_x * block_size_y >= 128", lambda block_size_x, use_padding: use_padding == 0 or block_size_x != 32],
}
MATMUL: dict[str, Any] = {
    "source": FOLDER / "matmul.cu",
    "name": "matmul",
    "sizes": {"m": 512, "n": 512, "k": 512},
    "arguments": {"c": Out("m", "n"), "a": In("m", "k"), "b": In("k", "n"), "m": Size(), "n": Size(), "k": Size()},
    "tunables": {"block_size_x": [16, 32], "block_size_y": [8, 16, 32], "tile_size_x": [1, 2], "tile_size_y": [1, 2]},
    "template": ("tile_size_x", "tile_size_y"),
    "grid": ("n // (block_size_x * tile_size_x)", "m // block_size_x"),
    "block": ("block_size_x", "block_size_y"),
    "reference": multiply,
    "restrictions": "block_size_x == block_size_y * tile_size_y",
    "multiple_of": {"m": "block_size_x", "n": "block_size_x * tile_size_x", "k": "block_size_x"},
}
