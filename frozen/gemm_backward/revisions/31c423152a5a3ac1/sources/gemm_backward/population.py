"""What users bring to gemm_backward: the backward pass of linear layers of common models at any number of rows, and what is rarer."""

from __future__ import annotations

from collections.abc import Mapping

from harness.spec import AttributeValue, Group, LogRange, Population

WIDTHS = (768, 1024, 1280, 1536, 2048, 2560, 3072, 4096, 5120, 6144, 8192, 11008, 12288, 14336)
HALF = ("bfloat16", "float16")
_ACTS = ("relu", "gelu_tanh")
# With tanh-GELU cuBLASLt serves too, with ReLU autograd alone.
_LIBRARIES = ("torch_autograd", "cublaslt")
_MAX_FLOPS = 4e12  # of the two products together: some 6 ms on an H200


def _is_affordable(sizes: Mapping[str, int]) -> bool:
    return 4 * sizes["M"] * sizes["N"] * sizes["K"] <= _MAX_FLOPS


def _layers(
    name: str,
    title: str,
    rows: LogRange,
    attributes: Mapping[str, tuple[AttributeValue, ...]],
    peers: tuple[str, ...] = _LIBRARIES,
    weight: int = 1,
) -> Group:
    given = {"dtype": HALF, "w_layout": ("nk",), "act": _ACTS} | dict(attributes)
    return Group(name, title, {"M": rows, "N": WIDTHS, "K": WIDTHS}, peers, given, weight=weight, keep=_is_affordable)


POPULATION = Population(
    (
        _layers("rows_1_to_127", "1 to 127 rows", LogRange(1, 127), {}),
        _layers("rows_128_to_1023", "128 to 1023 rows", LogRange(128, 1023), {}, weight=2),
        _layers("rows_1024_to_16384", "1024 to 16384 rows", LogRange(1024, 16384), {}, weight=2),
        _layers("other_activations", "no activation, SiLU and erf-GELU", LogRange(128, 8192), {"act": ("none", "silu", "gelu_erf")}),
        _layers("weights_kn", "W as [K, N]", LogRange(128, 8192), {"w_layout": ("kn",)}),
        _layers(
            "without_dbias",
            "without dbias: dZ, dW, or both",
            LogRange(128, 8192),
            {"with_dbias": (False,), "with_dz": (True, False), "with_dw": (True, False)},
        ),
        Group(
            "odd_sizes",
            "any M, N and K up to 8192",
            {"M": LogRange(1, 8192), "N": LogRange(1, 8192), "K": LogRange(1, 8192)},
            _LIBRARIES,
            {"dtype": HALF, "w_layout": ("nk", "kn"), "act": _ACTS},
        ),
        Group(
            "activation_alone",
            "without W: the gradient of an activation",
            {"M": LogRange(128, 16384), "N": WIDTHS, "K": lambda sizes: sizes["N"]},
            ("torch_autograd",),
            {"dtype": HALF, "act": ("relu", "gelu_tanh", "gelu_erf", "silu"), "with_w": (False,), "with_dw": (False,)},
        ),
    )
)
