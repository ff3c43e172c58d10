"""What users bring to elementwise: activations of networks, flat arenas of parameters, and views that begin anywhere."""

from __future__ import annotations

from collections.abc import Mapping

from harness.spec import Group, LogRange, Population

from .chains import CHAINS

PEERS = ("torch_eager", "torch_compile")
FLOATS = ("float32", "bfloat16", "float16")
# 64 KB to 1 GB an array of fp32, of which a chain has two to twelve.
_MIN_ELEMS, _MAX_ELEMS = 1 << 14, 1 << 28
_ALL = tuple(c.name for c in CHAINS)
_FLAT = tuple(c.name for c in CHAINS if all(o.extent.value in ("full", "one") for o in c.inputs))


def _fits(sizes: Mapping[str, int]) -> bool:
    return _MIN_ELEMS <= sizes["rows"] * sizes["columns"] <= _MAX_ELEMS


def _fits_cache(sizes: Mapping[str, int]) -> bool:
    return _MIN_ELEMS <= sizes["rows"] * sizes["columns"] <= 1 << 22


def _draw(*names: str) -> dict[str, tuple[bool | int | float | str, ...]]:
    return {"chain": names or _ALL, "dtype": FLOATS}


_SIZES = {"rows": LogRange(1, 1 << 20), "columns": LogRange(1, 1 << 18)}
_WIDTHS = {"rows": LogRange(64, 1 << 17), "columns": (768, 1024, 1536, 2048, 3072, 4096, 5120, 8192, 11008, 14336)}

POPULATION = Population(
    (
        Group("any", "1 to 1 M rows of 1 to 262144", _SIZES, PEERS, _draw(), weight=3, keep=_fits),
        Group("hidden", "tokens of a model's width", _WIDTHS, PEERS, _draw(), weight=3, keep=_fits),
        Group("arena", "one long row", {"rows": (1,), "columns": LogRange(_MIN_ELEMS, _MAX_ELEMS)}, PEERS, _draw(*_FLAT), weight=2),
        Group("in_cache", "64 KB to 16 MB", _SIZES, PEERS, _draw(), weight=1, keep=_fits_cache),
        Group(
            "unaligned",
            "rows that begin at any element: halves, slices, odd strides",
            _SIZES,
            PEERS,
            _draw(),
            {"in0": (1, 3, 5), "out0": (1, 2, 7)},
            weight=3,
            keep=_fits,
        ),
    )
)
