"""What users bring to softmax: from many short rows (attention heads, routers) to few long ones (vocabularies, long contexts)."""

from __future__ import annotations

from collections.abc import Mapping

from harness.spec import Group, LogRange, Population

PEERS = ("torch_eager", "torch_compile")
FLOATS = ("float32", "bfloat16", "float16")
MASKS = ("none", "causal", "boolean")
# 4 MiB to 256 MiB of fp32 each way: from what starts at all to what streams. Few rows may be smaller.
_MIN_ELEMS, _MAX_ELEMS = 1 << 20, 1 << 26


def _streams(sizes: Mapping[str, int]) -> bool:
    return _MIN_ELEMS <= sizes["rows"] * sizes["columns"] <= _MAX_ELEMS


def _fits(sizes: Mapping[str, int]) -> bool:
    return sizes["rows"] * sizes["columns"] <= _MAX_ELEMS


POPULATION = Population(
    (
        Group(
            "many_short_rows",
            "16384 to 524288 rows of 16 to 256",
            {"rows": LogRange(16384, 524288), "columns": LogRange(16, 256)},
            PEERS,
            {"dtype": FLOATS},
            weight=2,
            keep=_streams,
        ),
        Group(
            "round_columns",
            "powers of two and vocabularies",
            {"rows": LogRange(64, 262144), "columns": (64, 128, 256, 512, 1024, 2048, 4096, 8192, 32000, 32768, 50304, 65536, 128256)},
            PEERS,
            {"dtype": FLOATS, "log": (False, True)},
            weight=2,
            keep=_streams,
        ),
        Group(
            "middle_rows",
            "rows of 257 to 8192",
            {"rows": LogRange(128, 131072), "columns": LogRange(257, 8192)},
            PEERS,
            {"dtype": FLOATS, "log": (False, True)},
            weight=2,
            keep=_streams,
        ),
        Group(
            "long_rows",
            "rows of 8193 to 262144",
            {"rows": LogRange(8, 4096), "columns": LogRange(8193, 262144)},
            PEERS,
            {"dtype": FLOATS, "log": (False, True)},
            weight=2,
            keep=_fits,
        ),
        Group(
            "few_rows", "1 to 64 rows of any length", {"rows": LogRange(1, 64), "columns": LogRange(64, 262144)}, PEERS, {"dtype": FLOATS}
        ),
        Group(
            "attention",
            "scaled scores of heads, masked or not",
            {"rows": LogRange(1024, 262144), "columns": (64, 128, 256, 512, 1024, 2048, 4096)},
            PEERS,
            {"dtype": FLOATS, "mask": MASKS, "with_scale": (True,)},
            keep=_streams,
        ),
        Group(
            "padded_rows",
            "row strides beyond the rows",
            {"rows": LogRange(128, 131072), "columns": LogRange(64, 8192)},
            PEERS,
            {"dtype": FLOATS},
            padding={"x": (0, 1, 4, 64), "y": (0, 1, 4, 64)},
            keep=_streams,
        ),
    )
)
