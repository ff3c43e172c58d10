"""What users bring to softmax_backward: what they bring to softmax, a quarter of it not aligned to 16 bytes."""

from __future__ import annotations

from collections.abc import Mapping

from harness.spec import Group, LogRange, Population

PEERS = ("torch_eager", "torch_compile")
FLOATS = ("float32", "bfloat16", "float16")
_MIN_ELEMS, _MAX_ELEMS = 1 << 18, 1 << 26


def _fits(sizes: Mapping[str, int]) -> bool:
    return _MIN_ELEMS <= sizes["rows"] * sizes["columns"] <= _MAX_ELEMS


POPULATION = Population(
    (
        Group(
            "attention",
            "weights of heads, from scaled scores",
            {"rows": LogRange(1024, 524288), "columns": (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)},
            PEERS,
            {"dtype": FLOATS, "with_scale": (False, True)},
            weight=2,
            keep=_fits,
        ),
        Group(
            "any_length",
            "1 to 524288 rows of 8 to 262144, aligned",
            {"rows": LogRange(1, 524288), "columns": LogRange(8, 262144, 8)},
            PEERS,
            {"dtype": FLOATS, "log": (False, True)},
            keep=_fits,
        ),
        Group(
            "ragged",
            "1 to 524288 rows of 1 to 262144, in padded rows",
            {"rows": LogRange(1, 524288), "columns": LogRange(1, 262144)},
            PEERS,
            {"dtype": FLOATS, "log": (False, True)},
            padding={"dy": (0, 1, 8), "y": (0, 1, 8), "dx": (0, 3, 8)},
            keep=_fits,
        ),
    )
)
