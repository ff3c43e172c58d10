"""What users bring to transpose: square, tall and wide matrices of any size, with and without padded rows."""

from __future__ import annotations

from collections.abc import Mapping

from harness.spec import Group, LogRange, Population

PEERS = ("torch_eager", "torch_compile")
_MIN_ELEMS, _MAX_ELEMS = 1 << 18, 1 << 26  # 1 MiB to 256 MiB each way


def _fits(sizes: Mapping[str, int]) -> bool:
    return _MIN_ELEMS <= sizes["rows"] * sizes["columns"] <= _MAX_ELEMS


POPULATION = Population(
    (
        Group(
            "round_sizes",
            "multiples of 64",
            {"rows": LogRange(256, 32768, multiple=64), "columns": LogRange(256, 32768, multiple=64)},
            PEERS,
            weight=2,
            keep=_fits,
        ),
        Group("odd_sizes", "any size", {"rows": LogRange(64, 65536), "columns": LogRange(64, 65536)}, PEERS, weight=2, keep=_fits),
        Group("tall", "many rows of 2 to 128", {"rows": LogRange(16384, 4194304), "columns": LogRange(2, 128)}, PEERS, keep=_fits),
        Group("wide", "2 to 128 long rows", {"rows": LogRange(2, 128), "columns": LogRange(16384, 4194304)}, PEERS, keep=_fits),
        Group(
            "padded_rows",
            "row strides beyond the rows",
            {"rows": LogRange(256, 16384), "columns": LogRange(256, 16384)},
            PEERS,
            padding={"x": (0, 1, 4, 64), "y": (0, 1, 4, 64)},
            keep=_fits,
        ),
    )
)
