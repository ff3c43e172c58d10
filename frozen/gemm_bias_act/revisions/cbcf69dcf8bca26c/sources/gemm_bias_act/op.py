"""gemm_bias_act: ``Y = dropout(act(A B + bias + residual))`` and optionally Z, the same before act, row-major, any sizes and row strides.

In fp32 throughout, in TF32 where that is asked for, or in bf16 or fp16 with fp32 sums; B as [K, N] or as [N, K].
``numerics.py`` says what is right, ``space.py`` which kernels there are, ``choose.py`` which of them a problem gets; here are the problems
and what is aimed at on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from harness.spec import Attribute, Goal, OneOf, Op, Problem, Role, Sampling, Tensor, Tie, Uniform

from .choose import choose
from .domains import AXES
from .numerics import cost, drops, find_dtype, is_nk, reference, restrict, tolerance
from .population import POPULATION
from .space import KERNELS


def _problem(
    suite: str,
    m: int,
    n: int,
    k: int,
    act: str = "none",
    *,
    bias: bool = False,
    z: bool = False,
    residual: bool = False,
    dropout: bool = False,
    padding: Mapping[str, int] | None = None,
    kind: str = "",
) -> Problem:
    """``kind`` is a 16-bit dtype or tf32 and the layout of B, "bfloat16 nk"; for fp32 the layout alone, or nothing for [K, N]."""
    attributes: dict[str, bool | int | float | str] = {"act": act}
    *types, layout = kind.split() or [""]
    attributes |= {"precision" if t == "tf32" else "dtype": t for t in types} | ({"b_layout": layout} if layout else {})
    attributes |= {"with_bias": True} if bias else {}
    attributes |= {"save_z": True} if z else {}
    attributes |= {"with_residual": True} if residual else {}
    attributes |= {"with_dropout": True} if dropout else {}
    return Problem({"M": m, "N": n, "K": k}, attributes, padding or {}, frozenset(suite.split()))


def _half(shapes: Iterable[tuple[int, int, int]], acts: Iterable[str], kind: str = "bfloat16 nk") -> tuple[Problem, ...]:
    return tuple(_problem("bench", *shape, act, bias=True, kind=kind) for act in acts for shape in shapes)


# What is aimed at, group by group (``GOALS`` below).
_LARGE_SHAPES = (
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (8192, 16384, 4096),
    (8192, 4096, 16384),
    (8192, 3072, 768),
    (16384, 4096, 1024),
)
LARGE = _half(_LARGE_SHAPES, ("relu", "gelu_tanh")) + _half([(4096, 4096, 4096)], ["relu"], "float16 nk")
LARGE_UNFUSED = _half(_LARGE_SHAPES, ("silu", "gelu_erf"))
SMALL = _half([(512, 512, 512), (1024, 1024, 1024)], ("relu", "gelu_tanh")) + _half([(128, 4096, 4096), (64, 16384, 4096)], ["gelu_tanh"])
_WEIGHTS = ((4096, 4096), (12288, 2560), (2560, 4096), (14336, 4096))
DECODE = _half([(m, n, k) for n, k in _WEIGHTS for m in (1, 2, 4, 8, 16, 32)], ["gelu_tanh"])
TF32_CUBES = tuple(_problem("bench", size, size, size, "relu", bias=True, kind="tf32 nk") for size in (1024, 4096, 8192))
FP32_CUBES = tuple(_problem("bench sweep" if size == 2048 else "bench", size, size, size) for size in (1024, 2048, 4096, 8192))
FP32_SKINNY = tuple(_problem("bench", m, n, k) for n, k in ((4096, 4096), (14336, 4096)) for m in (1, 16, 64))

# Of each kind of the population where the listed goals have nothing: fp16, odd sizes, few rows of fp32 and TF32, waves that do not fit.
_POPULAR = (
    ((59, 5120, 2048), "relu", "float16 nk"),
    ((40, 2048, 2048), "gelu_tanh", "float16 nk"),
    ((20, 1280, 1536), "gelu_tanh", "float16 nk"),
    ((78, 1280, 12288), "relu", "bfloat16 kn"),
    ((200, 6144, 5120), "relu", "float16 nk"),
    ((424, 4096, 6144), "gelu_tanh", "float16 nk"),
    ((1675, 4096, 8192), "relu", "float16 nk"),
    ((2579, 2048, 14336), "gelu_tanh", "float16 nk"),
    ((9, 1610, 1147), "relu", "float16 nk"),
    ((30, 1031, 2049), "relu", "float16 nk"),
    ((44, 2307, 1201), "relu", "float16 nk"),
    ((61, 437, 1333), "relu", "float16 kn"),
    ((197, 1001, 1751), "relu", "float16 nk"),
    ((1300, 2049, 1025), "relu", "float16 nk"),
    ((7, 3072, 5120), "relu", "nk"),
    ((85, 768, 2560), "relu", "nk"),
    ((386, 1024, 2048), "relu", "nk"),
    ((12, 2560, 4096), "relu", "tf32 nk"),
    ((50, 1280, 5120), "gelu_tanh", "tf32 nk"),
    ((1536, 4096, 2048), "gelu_tanh", "tf32 nk"),
    ((3236, 4096, 3072), "gelu_tanh", "tf32 nk"),
)

# Layers of small networks: those of one for 28 x 28 images at a batch of 128, and in fp32 others drawn log-uniformly from M 1 to 512 and
# N and K 8 to 1024.
_TINY = (
    _problem("bench", 128, 256, 784, "relu", bias=True, kind="nk"),
    _problem("bench", 128, 128, 256, "relu", bias=True, kind="nk"),
    _problem("bench", 128, 10, 128, bias=True, kind="nk"),
    _problem("bench", 52, 344, 96, "relu", bias=True, kind="nk"),
    _problem("bench", 301, 24, 613, "relu", bias=True, kind="nk"),
    _problem("bench", 479, 448, 232, "relu", bias=True, kind="nk"),
    _problem("bench", 37, 722, 61, "relu", bias=True, kind="nk"),
    _problem("bench", 128, 256, 784, "gelu_tanh", bias=True, kind="nk"),
    _problem("bench", 211, 96, 416, "silu", bias=True, kind="nk"),
    _problem("bench", 128, 128, 256, "gelu_tanh", bias=True, z=True, kind="nk"),
    _problem("bench", 74, 568, 184, "gelu_tanh", bias=True, z=True, kind="nk"),
    _problem("bench", 128, 256, 784, "relu", bias=True),
    _problem("bench", 163, 48, 320, "relu", bias=True),
    _problem("bench", 128, 256, 784, "relu", bias=True, kind="bfloat16 nk"),
    _problem("bench", 128, 128, 256, "relu", bias=True, kind="bfloat16 nk"),
    _problem("bench", 128, 10, 128, bias=True, kind="bfloat16 nk"),
)

PROBLEMS = (
    _problem("verify", 1, 1, 1),
    _problem("verify", 1, 65, 7, "relu", bias=True),
    _problem("verify", 37, 29, 1, "silu", z=True),
    _problem("verify", 15, 17, 31, "gelu_tanh", bias=True),
    _problem("verify", 33, 31, 32, "gelu_erf", bias=True, z=True),
    _problem("verify", 64, 64, 64, "relu"),
    _problem("verify", 63, 65, 16, "none", bias=True, z=True),
    _problem("verify", 65, 63, 17, "silu", bias=True, padding={"a": 3, "b": 1, "y": 1}),
    _problem("verify", 127, 128, 36, "gelu_tanh", bias=True, z=True, padding={"a": 4, "b": 4, "y": 4, "z": 4}),
    _problem("verify", 129, 100, 24, "relu", z=True, padding={"b": 8}),
    _problem("verify", 128, 257, 20, "gelu_erf"),
    _problem("verify", 5, 300, 131, "none", bias=True),
    _problem("verify", 131, 2, 100, "gelu_tanh", bias=True),
    _problem("verify", 97, 101, 103, "silu", bias=True, z=True),
    # Several chunks and stages of k, split among the blocks of a cluster, which get different shares.
    _problem("verify", 3, 132, 1100, "silu", bias=True, z=True),
    _problem("verify", 34, 140, 1304, "gelu_erf", bias=True, padding={"a": 4, "b": 4, "z": 4}, z=True),
    # fp32 with B as [N, K].
    _problem("verify", 1, 1, 1, kind="nk"),
    _problem("verify", 37, 29, 1, "silu", z=True, kind="nk"),
    _problem("verify", 5, 300, 131, "none", bias=True, kind="nk"),
    _problem("verify", 5, 30, 132, "gelu_tanh", bias=True, z=True, kind="nk"),
    _problem("verify", 16, 65, 1028, "silu", bias=True, padding={"a": 4, "b": 8}, kind="nk"),
    _problem("verify", 65, 63, 17, "gelu_erf", bias=True, z=True, padding={"a": 3, "b": 1, "y": 1}, kind="nk"),
    _problem("verify", 129, 257, 36, "gelu_tanh", bias=True, padding={"b": 4, "y": 4}, kind="nk"),
    _problem("verify", 34, 140, 1301, "relu", bias=True, kind="nk"),
    _problem("verify", 1, 8, 8, bias=True, kind="bfloat16 nk"),
    _problem("verify", 64, 64, 64, "relu", kind="bfloat16 nk"),
    _problem("verify", 65, 40, 1, "none", bias=True, padding={"a": 7, "b": 7}, kind="float16 nk"),
    _problem("verify", 33, 31, 29, "silu", bias=True, z=True, kind="bfloat16 kn"),
    _problem("verify", 5, 301, 131, "none", bias=True, kind="float16 nk"),
    _problem("verify", 130, 72, 200, "gelu_tanh", bias=True, z=True, kind="float16 kn"),
    _problem("verify", 257, 264, 72, "silu", bias=True, padding={"a": 8, "y": 8}, kind="bfloat16 kn"),
    _problem("verify", 129, 136, 136, "gelu_erf", bias=True, z=True, padding={"b": 8, "z": 8}, kind="float16 nk"),
    _problem("verify", 300, 328, 456, "gelu_tanh", bias=True, kind="bfloat16 nk"),
    _problem("verify", 1, 8, 4, bias=True, kind="tf32 nk"),
    _problem("verify", 65, 40, 36, "silu", bias=True, z=True, kind="tf32 nk"),
    _problem("verify", 257, 264, 72, "gelu_tanh", bias=True, padding={"a": 4, "y": 4}, kind="tf32 nk"),
    _problem("verify", 129, 136, 300, "gelu_erf", bias=True, z=True, padding={"b": 4, "z": 4}, kind="tf32 nk"),
    _problem("verify", 200, 196, 260, "relu", kind="tf32 nk"),
    # Long k and few tiles: the steps of k are split. Then a whole wave of small tiles in front of split ones.
    _problem("verify", 40, 136, 3080, "silu", bias=True, z=True, kind="bfloat16 nk"),
    _problem("verify", 70, 264, 3080, "relu", bias=True, kind="float16 kn"),
    _problem("verify", 21, 76, 1540, "gelu_tanh", bias=True, z=True, kind="tf32 nk"),
    _problem("verify", 1100, 136, 840, "gelu_tanh", bias=True, kind="bfloat16 nk"),
    # Rows of Y that begin anywhere, and that begin on 16-byte boundaries and do not end there.
    _problem("verify", 43, 77, 136, "gelu_erf", bias=True, z=True, padding={"z": 3}, kind="float16 nk"),
    _problem("verify", 43, 77, 136, "relu", bias=True, z=True, padding={"y": 3, "z": 3}, kind="bfloat16 nk"),
    _problem("verify", 9, 30, 44, "silu", bias=True, z=True, padding={"y": 2, "z": 2}, kind="tf32 nk"),
    # More tiles than multiprocessors: a block gets a second one.
    _problem("verify", 3, 200, 1000, "silu", bias=True, z=True, kind="float16 nk"),
    _problem("verify", 7, 88, 328, "gelu_erf", bias=True, kind="bfloat16 kn"),
    _problem("verify", 17800, 40, 72, "relu", bias=True, kind="bfloat16 nk"),
    # With a residual.
    _problem("verify", 1, 1, 1, residual=True),
    _problem("verify", 33, 30, 40, "gelu_tanh", bias=True, z=True, residual=True, padding={"residual": 3}),
    _problem("verify", 37, 132, 68, "relu", residual=True, padding={"a": 4, "b": 4, "y": 4, "residual": 8}),
    _problem("verify", 5, 64, 132, "silu", bias=True, residual=True, kind="nk"),
    _problem("verify", 3, 140, 264, bias=True, residual=True, padding={"residual": 4}, kind="bfloat16 nk"),
    _problem("verify", 43, 77, 136, "gelu_erf", bias=True, z=True, residual=True, padding={"residual": 1}, kind="float16 nk"),
    _problem("verify", 130, 72, 200, "relu", z=True, residual=True, padding={"residual": 8}, kind="bfloat16 kn"),
    _problem("verify", 40, 136, 3080, "silu", bias=True, residual=True, kind="bfloat16 nk"),
    _problem("verify", 37, 76, 100, "gelu_tanh", bias=True, residual=True, padding={"residual": 4}, kind="tf32 nk"),
    # With dropout: elements in fours and not, the end of a row within four.
    _problem("verify", 1, 1, 1, dropout=True),
    _problem("verify", 33, 30, 40, "gelu_tanh", bias=True, z=True, residual=True, dropout=True, padding={"y": 3}),
    _problem("verify", 37, 132, 68, "relu", bias=True, dropout=True, padding={"a": 4, "b": 4, "y": 4}),
    _problem("verify", 5, 65, 132, "silu", bias=True, dropout=True, kind="nk"),
    _problem("verify", 43, 77, 136, "gelu_erf", bias=True, z=True, dropout=True, padding={"y": 1}, kind="float16 nk"),
    _problem("verify", 130, 72, 200, "relu", bias=True, residual=True, dropout=True, kind="bfloat16 kn"),
    _problem("emulated", 256, 256, 256),
    _problem("emulated", 384, 256, 320, "gelu_tanh", bias=True, kind="bfloat16 nk"),
    _problem("emulated", 200, 130, 77, "gelu_tanh", bias=True),
    *FP32_CUBES,
    *FP32_SKINNY,
    *TF32_CUBES,
    *SMALL,
    *LARGE,
    *LARGE_UNFUSED,
    *DECODE,
    _problem("bench", 4096, 4096, 4096, "gelu_tanh", bias=True),
    # The second layer of a transformer's feed-forward, with the block's input.
    _problem("bench", 4096, 1024, 4096, bias=True, residual=True, kind="bfloat16 nk"),
    _problem("bench", 64, 4096, 4096, bias=True, residual=True, kind="bfloat16 nk"),
    _problem("bench", 4096, 1024, 4096, bias=True, residual=True, kind="nk"),
    # A linear layer's weights as frameworks keep them.
    _problem("bench", 4096, 4096, 4096, "gelu_tanh", bias=True, kind="nk"),
    _problem("bench", 4095, 4097, 1023, kind="nk"),
    _problem("bench", 4095, 4097, 1023),
    _problem("bench sweep", 8192, 128, 1000),
    _problem("bench", 4096, 4096, 4096, "gelu_tanh", bias=True, kind="bfloat16 kn"),
    _problem("bench", 8192, 3072, 768, "gelu_erf", bias=True, z=True, kind="bfloat16 nk"),
    _problem("bench", 4095, 4097, 1023, "relu", bias=True, kind="bfloat16 nk"),
    *(_problem("bench", *shape, act, bias=True, kind=kind) for shape, act, kind in _POPULAR),
    *_TINY,
)

_SGEMM = ("cublas_sgemm", "cublas_sgemm_epilogue")
GOALS = (
    Goal("large", "bf16/fp16 large, ReLU and tanh-GELU", LARGE, ("cublaslt_best32",), aim=1.02, least=0.95, worst=0.88),
    Goal(
        "large_unfused",
        "the same shapes, SiLU and erf-GELU",
        LARGE_UNFUSED,
        ("torch_eager", "torch_compile", "triton", "cutlass"),
        aim=1.15,
        least=1.06,
    ),
    Goal("small", "512 and 1024 cubes, 128 and 64 rows", SMALL, ("cublaslt", "cublaslt_best32"), aim=1.05, least=0.95),
    Goal("decode", "M = 1 to 32, bf16", DECODE, ("cublaslt",), aim=1.15, least=1.03),
    Goal("fp32_cubes", "fp32 cubes 1024 to 8192", FP32_CUBES, _SGEMM, aim=1.02, least=0.95),
    Goal("tf32", "TF32 cubes 1024, 4096, 8192, ReLU", TF32_CUBES, ("cublaslt", "cublaslt_best32"), aim=0.95, least=0.9),
    Goal("fp32_skinny", "fp32, M = 1, 16, 64", FP32_SKINNY, _SGEMM, aim=1.5, least=1.2),
)


def _name_b(problem: Problem) -> tuple[str, ...]:
    return ("N", "K") if is_nk(problem) else ("K", "N")


OP = Op(
    name="gemm_bias_act",
    summary="Y = dropout(act(A B + bias + residual)) in fp32, TF32, bf16 or fp16, row-major; the pre-activation Z on request",
    tensors=(
        Tensor("a", ("M", "K"), Role.INPUT, find_dtype, can_pad_rows=True),
        Tensor("b", _name_b, Role.INPUT, find_dtype, can_pad_rows=True),
        Tensor("bias", ("N",), Role.INPUT, find_dtype, present=lambda p: bool(p.attributes.get("with_bias", False))),
        Tensor("y", ("M", "N"), Role.OUTPUT, find_dtype, can_pad_rows=True),
        Tensor("z", ("M", "N"), Role.OUTPUT, find_dtype, present=lambda p: bool(p.attributes.get("save_z", False)), can_pad_rows=True),
        Tensor(
            "residual",
            ("M", "N"),
            Role.INPUT,
            find_dtype,
            present=lambda p: bool(p.attributes.get("with_residual", False)),
            can_pad_rows=True,
            since=1,
        ),
        Tensor("p", (), Role.INPUT, present=drops, values=Uniform(0.0, 0.9), since=2),
        # Seed and offset, as elementwise has them.
        Tensor("counter", (2,), Role.INPUT, "int64", present=drops, values=Uniform(-(2**62), 2**62), since=2),
    ),
    kernels=KERNELS,
    problems=PROBLEMS,
    reference=reference,
    tolerance=tolerance,
    cost=cost,
    population=POPULATION,
    goals=GOALS,
    choose=choose,
    sampling=Sampling((0, 1), restrict),
    ties=(Tie((OneOf("dtype", ("bfloat16", "float16")),), {"precision": "ieee"}),),
    attributes=(
        Attribute("act", ("none", "relu", "gelu_tanh", "gelu_erf", "silu"), "none"),
        Attribute("dtype", ("float32", "bfloat16", "float16"), "float32", passed=False),
        Attribute("b_layout", ("kn", "nk"), "kn"),
        Attribute("precision", ("ieee", "tf32"), "ieee"),
        Attribute("with_bias", (False, True), False, passed=False),
        Attribute("save_z", (False, True), False, passed=False),
        Attribute("with_residual", (False, True), False, passed=False, since=1),
        Attribute("with_dropout", (False, True), False, passed=False, since=2),
    ),
    axes=AXES,
    accumulate="float32",
)
