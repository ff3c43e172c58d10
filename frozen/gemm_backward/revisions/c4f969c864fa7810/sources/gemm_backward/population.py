"""What users bring to gemm_backward: the backward pass of linear layers of common models at any number of rows, and what is rarer."""

from __future__ import annotations

from collections.abc import Mapping

from harness.spec import AttributeValue, Group, LogRange, Population

WIDTHS = (768, 1024, 1280, 1536, 2048, 2560, 3072, 4096, 5120, 6144, 8192, 11008, 12288, 14336)
HALF = ("bfloat16", "float16")
_ACTS = ("relu", "gelu_tanh")
# With tanh-GELU cuBLASLt serves too, with ReLU autograd alone.
_LIBRARIES = ("torch_autograd", "cublaslt")
# Of the two products together: some 6 ms on an H200.
_MAX_FLOPS = 4e12
_MAX_FLOPS_FP32 = 3e11


def _is_affordable(sizes: Mapping[str, int]) -> bool:
    return 4 * sizes["M"] * sizes["N"] * sizes["K"] <= _MAX_FLOPS


def _is_affordable_in_fp32(sizes: Mapping[str, int]) -> bool:
    return 4 * sizes["M"] * sizes["N"] * sizes["K"] <= _MAX_FLOPS_FP32


def _fp32(name: str, title: str, sizes: Mapping[str, LogRange | tuple[int, ...]], **attributes: tuple[AttributeValue, ...]) -> Group:
    given = {"dtype": ("float32",), "w_layout": ("nk",), "act": _ACTS} | attributes
    return Group(name, title, sizes, ("torch_autograd",), given, keep=_is_affordable_in_fp32)


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
        _fp32("fp32_small", "fp32, layers of small networks", {"M": LogRange(1, 512), "N": LogRange(8, 1024), "K": LogRange(8, 1024)}),
        _fp32("fp32_layers", "fp32, layers of common models", {"M": LogRange(32, 8192), "N": WIDTHS, "K": WIDTHS}),
        _fp32(
            "fp32_others",
            "fp32, W as [K, N], other activations, dZ or dW alone",
            {"M": LogRange(1, 8192), "N": LogRange(1, 4096), "K": LogRange(1, 4096)},
            w_layout=("nk", "kn"),
            act=("none", "silu", "gelu_erf"),
            with_dbias=(False, True),
            with_dz=(True, False),
            with_dw=(True, False),
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
