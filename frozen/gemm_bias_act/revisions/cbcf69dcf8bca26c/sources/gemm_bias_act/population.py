"""What users bring to gemm_bias_act: linear layers of common models at any number of rows, and what is rarer."""

from __future__ import annotations

from harness.spec import Group, LogRange, Population

# Hidden, feed-forward and projection widths of common models (BERT, GPT, Llama, Mistral, Qwen).
WIDTHS = (768, 1024, 1280, 1536, 2048, 2560, 3072, 4096, 5120, 6144, 8192, 11008, 12288, 14336)
_NARROW = tuple(w for w in WIDTHS if w <= 8192)
HALF = ("bfloat16", "float16")
_FUSED = {"act": ("relu", "gelu_tanh"), "with_bias": (True,)}
_LIBRARIES = ("cublaslt", "torch_eager")


def _linear(name: str, title: str, low: int, high: int) -> Group:
    """Return the layers with this many rows, bf16 and fp16, ReLU and tanh-GELU with bias, weights as [N, K]."""
    attributes = _FUSED | {"dtype": HALF, "b_layout": ("nk",)}
    return Group(name, title, {"M": LogRange(low, high), "N": WIDTHS, "K": WIDTHS}, _LIBRARIES, attributes, weight=2)


POPULATION = Population(
    (
        _linear("rows_1_to_32", "1 to 32 rows, bf16 and fp16", 1, 32),
        _linear("rows_33_to_127", "33 to 127 rows, bf16 and fp16", 33, 127),
        _linear("rows_128_to_1023", "128 to 1023 rows, bf16 and fp16", 128, 1023),
        _linear("rows_1024_to_16384", "1024 to 16384 rows, bf16 and fp16", 1024, 16384),
        Group(
            "weights_kn",
            "weights as [K, N], bf16 and fp16",
            {"M": LogRange(1, 8192), "N": WIDTHS, "K": WIDTHS},
            _LIBRARIES,
            _FUSED | {"dtype": HALF, "b_layout": ("kn",)},
        ),
        Group(
            "other_activations",
            "no activation, SiLU and erf-GELU, bf16 and fp16",
            {"M": LogRange(1, 8192), "N": WIDTHS, "K": WIDTHS},
            ("cublaslt", "torch_eager", "torch_compile"),
            {"act": ("none", "silu", "gelu_erf"), "with_bias": (True,), "dtype": HALF, "b_layout": ("nk",)},
        ),
        Group(
            "odd_sizes",
            "any M, N and K up to 8192, bf16 and fp16",
            {"M": LogRange(1, 8192), "N": LogRange(1, 8192), "K": LogRange(1, 8192)},
            _LIBRARIES,
            _FUSED | {"dtype": HALF, "b_layout": ("nk", "kn")},
        ),
        Group(
            "padded_rows",
            "row strides beyond the rows, bf16 and fp16",
            {"M": LogRange(1, 8192), "N": _NARROW, "K": _NARROW},
            _LIBRARIES,
            _FUSED | {"dtype": HALF, "b_layout": ("nk",)},
            {"a": (0, 1, 8, 64), "b": (0, 8, 64), "y": (0, 1, 8, 64)},
        ),
        Group(
            "tf32",
            "TF32, ReLU and tanh-GELU",
            {"M": LogRange(16, 8192), "N": _NARROW, "K": _NARROW},
            ("cublaslt",),
            _FUSED | {"precision": ("tf32",), "b_layout": ("nk",)},
        ),
        Group(
            "fp32",
            "fp32, with and without epilogue",
            {"M": LogRange(1, 4096), "N": _NARROW, "K": _NARROW},
            ("cublas_sgemm", "cublas_sgemm_epilogue"),
            {"act": ("none", "relu", "gelu_tanh"), "with_bias": (False, True), "b_layout": ("kn", "nk")},
        ),
    )
)
