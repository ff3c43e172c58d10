"""What users bring to sdpa: causal training and prefill, encoders, decoding, odd sizes; heads inside of rows or around them."""

from __future__ import annotations

from collections.abc import Mapping

from harness.spec import Group, LogRange, Population

PEERS = ("torch_sdpa",)
_INSIDE, _AROUND = (0, 2, 1, 3), (0, 1, 2, 3)
_HALVES = ("bfloat16", "float16")
_ORDERS = dict.fromkeys("qkvo", (_INSIDE, _AROUND))
_MAX_BYTES = 1 << 30


def _same_rows(sizes: Mapping[str, int]) -> int:
    return sizes["S"]


def _fits(sizes: Mapping[str, int]) -> bool:
    b, h, s, t, d = (sizes[name] for name in "BHSTD")
    return 2 * b * h * d * (2 * s + 2 * t) <= _MAX_BYTES and 4 * b * h * s * t * d <= 1e13


POPULATION = Population(
    (
        Group(
            "causal",
            "training and prefill: causal, 128 to 8192 tokens",
            {"B": (1, 2, 4, 8, 16), "H": (8, 12, 16, 32), "S": LogRange(128, 8192, 64), "T": _same_rows, "D": (64, 128)},
            PEERS,
            {"dtype": _HALVES, "causal": (True,)},
            weight=3,
            keep=_fits,
            orders=_ORDERS,
        ),
        Group(
            "encoder",
            "no mask, any number of tokens",
            {"B": LogRange(1, 64), "H": (4, 8, 12, 16), "S": LogRange(16, 4096), "T": LogRange(16, 4096), "D": (32, 64, 80, 128)},
            PEERS,
            {"dtype": _HALVES},
            weight=2,
            keep=_fits,
            orders=_ORDERS,
        ),
        Group(
            "decode",
            "one to eight rows over a long cache",
            {"B": LogRange(1, 64), "H": (8, 16, 32), "S": LogRange(1, 8), "T": LogRange(128, 32768), "D": (64, 128)},
            PEERS,
            {"dtype": _HALVES},
            weight=2,
            keep=_fits,
        ),
        Group(
            "single_precision",
            "fp32",
            {"B": LogRange(1, 16), "H": (4, 8, 12), "S": LogRange(16, 2048), "T": _same_rows, "D": (32, 64, 128)},
            PEERS,
            {"causal": (False, True)},
            keep=_fits,
            orders=_ORDERS,
        ),
    )
)
