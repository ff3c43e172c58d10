"""What users bring to reduce: gradients of biases, norms of gradients, statistics of rows, from 64 KiB to 4 GiB; a quarter not aligned."""

from __future__ import annotations

from collections.abc import Mapping

from harness.spec import Group, LogRange, Population

PEERS = ("torch_eager", "torch_compile")
FLOATS = ("float32", "bfloat16", "float16")
RESULTS = (*FLOATS, "int64")
REDUCTIONS = ("sum", "mean", "max", "min", "argmax", "l2_norm", "sum_squares")
_MIN_ELEMS, _MAX_ELEMS = 1 << 15, 1 << 30


def _fits(sizes: Mapping[str, int]) -> bool:
    return _MIN_ELEMS <= sizes["rows"] * sizes["columns"] <= _MAX_ELEMS


POPULATION = Population(
    (
        Group(
            "bias_gradient",
            "tokens of the widths of common models, summed over the tokens",
            {"rows": LogRange(256, 65536), "columns": (512, 768, 1024, 1600, 2048, 2560, 3072, 4096, 5120, 6144, 8192, 12288, 16384)},
            PEERS,
            {"dtype": ("bfloat16", "float16", "float32"), "result_dtype": FLOATS, "reduction": ("sum",), "over": ("rows",)},
            keep=_fits,
        ),
        Group(
            "arena",
            "all elements of one vector: norms of gradients, means of losses",
            {"rows": (1,), "columns": LogRange(_MIN_ELEMS, _MAX_ELEMS)},
            PEERS,
            {
                "dtype": FLOATS,
                "result_dtype": ("float32",),
                "reduction": ("sum", "mean", "max", "l2_norm", "sum_squares"),
                "over": ("all",),
            },
            keep=_fits,
        ),
        Group(
            "any_width",
            "1 to 1 M rows of 8 to 262144, aligned",
            {"rows": LogRange(1, 1 << 20), "columns": LogRange(8, 262144, 8)},
            PEERS,
            {"dtype": FLOATS, "result_dtype": RESULTS, "reduction": REDUCTIONS, "over": ("columns", "rows", "all")},
            keep=_fits,
        ),
        Group(
            "ragged",
            "1 to 1 M rows of 1 to 262144, in padded rows",
            {"rows": LogRange(1, 1 << 20), "columns": LogRange(1, 262144)},
            PEERS,
            {"dtype": FLOATS, "result_dtype": RESULTS, "reduction": REDUCTIONS, "over": ("columns", "rows", "all")},
            padding={"x": (0, 1, 8)},
            keep=_fits,
        ),
    )
)
