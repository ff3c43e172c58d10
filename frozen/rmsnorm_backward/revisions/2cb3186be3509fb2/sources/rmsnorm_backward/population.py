"""What users bring to rmsnorm_backward: the widths of transformers, and rows of any length; a quarter is not aligned to 16 bytes."""

from __future__ import annotations

from collections.abc import Mapping

from harness.spec import Group, LogRange, Population

PEERS = ("torch_eager", "torch_compile")
FLOATS = ("float32", "bfloat16", "float16")
# 64 KiB to 4 GiB of all tensors together, whatever the dtype.
_MIN_ELEMS, _MAX_ELEMS = 1 << 15, 1 << 28


def _fits(sizes: Mapping[str, int]) -> bool:
    return _MIN_ELEMS <= sizes["rows"] * sizes["columns"] <= _MAX_ELEMS


POPULATION = Population(
    (
        Group(
            "transformer",
            "tokens of the widths of common models",
            {"rows": LogRange(256, 65536), "columns": (512, 768, 1024, 1600, 2048, 2560, 3072, 4096, 5120, 6144, 7168, 8192, 12288, 16384)},
            PEERS,
            {"dtype": ("bfloat16", "float16", "float32"), "with_dsum": (False, True)},
            weight=2,
            keep=_fits,
        ),
        Group(
            "any_width",
            "1 to 1 M rows of 8 to 262144, aligned",
            {"rows": LogRange(1, 1 << 20), "columns": LogRange(8, 262144, 8)},
            PEERS,
            {"dtype": FLOATS, "with_dsum": (False, True)},
            keep=_fits,
        ),
        Group(
            "ragged",
            "1 to 1 M rows of 1 to 262144, in padded rows",
            {"rows": LogRange(1, 1 << 20), "columns": LogRange(1, 262144)},
            PEERS,
            {"dtype": FLOATS, "with_dsum": (False, True)},
            padding={"x": (0, 1, 8), "dx": (0, 3, 8)},
            keep=_fits,
        ),
    )
)
