"""What users bring to optimizer: single weights and biases, and flat arenas of whole networks."""

from __future__ import annotations

from harness.spec import Group, LogRange, Population

PEERS = ("torch_fused",)

POPULATION = Population(
    (
        Group("arena", "whole networks: 16 M to 512 M parameters in fp32", {"N": LogRange(1 << 24, 1 << 29)}, PEERS, weight=2),
        Group(
            "mixed_arena",
            "the same with a 16-bit gradient and a 16-bit copy of the parameters",
            {"N": LogRange(1 << 24, 1 << 28)},
            PEERS,
            {"dtype": ("bfloat16", "float16"), "with_copy": (True,)},
            weight=2,
        ),
        Group("weights", "single weights, 64 K to 16 M", {"N": LogRange(1 << 16, 1 << 24)}, PEERS, {"decoupled": (True, False)}, weight=2),
        Group("small", "biases and norms, 1 to 64 K", {"N": LogRange(1, 1 << 16)}, PEERS),
    )
)
