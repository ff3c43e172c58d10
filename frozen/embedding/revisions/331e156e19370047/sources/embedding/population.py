"""What users bring to embedding: the vocabularies and widths of language models, and tables of any shape; a quarter is not aligned."""

from __future__ import annotations

from collections.abc import Mapping

from harness.spec import Group, LogRange, Population

PEERS = ("torch_eager", "torch_compile")
FLOATS = ("float32", "bfloat16", "float16")
INDICES = ("int64", "int32")
# 64 KiB to 4 GiB of table and result together, whatever the dtype.
_MIN_ELEMS, _MAX_ELEMS = 1 << 15, 1 << 29


def _fits(sizes: Mapping[str, int]) -> bool:
    return _MIN_ELEMS <= (sizes["count"] + sizes["vocabulary"]) * sizes["width"] <= _MAX_ELEMS


POPULATION = Population(
    (
        Group(
            "language_model",
            "256 to 65536 tokens, vocabularies and widths of common models",
            {
                "count": LogRange(256, 65536),
                "vocabulary": (32000, 50257, 50304, 65536, 128256, 151936),
                "width": (512, 768, 1024, 1600, 2048, 3072, 4096, 5120, 8192),
            },
            PEERS,
            {"dtype": ("bfloat16", "float16", "float32"), "index_dtype": ("int64",), "with_status": (False, True)},
            weight=2,
            keep=_fits,
        ),
        Group(
            "any_width",
            "1 to 1 M indices into 1 to 1 M rows of 8 to 16384, aligned",
            {"count": LogRange(1, 1 << 20), "vocabulary": LogRange(1, 1 << 20), "width": LogRange(8, 16384, 8)},
            PEERS,
            {"dtype": FLOATS, "index_dtype": INDICES, "with_status": (False, True)},
            keep=_fits,
        ),
        Group(
            "ragged",
            "1 to 1 M indices into 1 to 1 M rows of 1 to 16384, in padded rows",
            {"count": LogRange(1, 1 << 20), "vocabulary": LogRange(1, 1 << 20), "width": LogRange(1, 16384)},
            PEERS,
            {"dtype": FLOATS, "index_dtype": INDICES, "with_status": (False, True)},
            padding={"table": (0, 1, 8), "y": (0, 3, 8)},
            keep=_fits,
        ),
    )
)
