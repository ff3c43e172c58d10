"""What users bring to cross_entropy: classifiers with few classes, and language models with large vocabularies."""

from __future__ import annotations

from collections.abc import Mapping

from harness.spec import Group, LogRange, Population

PEERS = ("torch_eager", "torch_compile")
_MAX_ELEMS = 1 << 28


def _fits(sizes: Mapping[str, int]) -> bool:
    return sizes["rows"] * sizes["classes"] <= _MAX_ELEMS


POPULATION = Population(
    (
        Group(
            "vocabulary",
            "language models: 1024 to 32768 rows, vocabularies of 1024 to 262144",
            {"rows": LogRange(1024, 32768), "classes": LogRange(1024, 262144)},
            PEERS,
            {"dtype": ("bfloat16", "float16", "float32")},
            weight=2,
            keep=_fits,
        ),
        Group(
            "known_vocabularies",
            "the vocabularies of common models",
            {"rows": LogRange(1024, 16384), "classes": (32000, 50257, 50304, 128256, 151936, 262144)},
            PEERS,
            {"dtype": ("bfloat16",)},
            keep=_fits,
        ),
        Group(
            "classifier",
            "16 to 8192 rows of 2 to 1000 classes",
            {"rows": LogRange(16, 8192), "classes": LogRange(2, 1000)},
            PEERS,
            {"dtype": ("float32", "bfloat16"), "reduction": ("mean", "sum")},
        ),
    )
)
