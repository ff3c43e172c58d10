"""gemm_backward: the backward pass of ``Y = act(Z + bias) W``, with ``X = act(Z + bias)`` kept: dZ, dbias and dW from dY.

``dZ = (dY W') * act'(Z + bias)``, ``dbias`` the sums of its columns, ``dW = X' dY``; fp32, bf16 or fp16 with fp32 sums, any sizes and row
strides, W and dW as [K, N] or [N, K]. Without W, Y is X: the gradient of an activation alone. ``numerics.py`` says what is right,
``space.py`` which kernels there are, ``choose.py`` which of them a problem gets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from harness.spec import Attribute, Axis, Count, Goal, OneOf, Op, Problem, Role, Sampling, Tensor, Tie

from .choose import FEW_ELEMENTS, LONG_SUMS, MIDDLING_FP32, SHORT_SUMS, SMALL, SMOOTH, WIDE, choose
from .numerics import (
    accumulates,
    cost,
    find_act,
    find_axis,
    find_dtype,
    has,
    has_w,
    is_nk,
    reference,
    restrict,
    stores_weights,
    tolerance,
)
from .population import POPULATION
from .space import KERNELS


def _problem(
    suite: str,
    m: int,
    n: int,
    k: int,
    act: str = "none",
    kind: str = "bfloat16 nk",
    *,
    outputs: str = "dz dbias dw",
    with_w: bool = True,
    padding: Mapping[str, int] | None = None,
) -> Problem:
    """``kind`` is the dtype and the layout of W; ``outputs`` are those that are wanted, ``dw_total`` where dW is added to it."""
    attributes: dict[str, bool | int | float | str] = {"act": act}
    attributes |= dict(zip(("dtype", "w_layout"), kind.split(), strict=True))
    named = outputs.replace("dw_total", "dw").split()
    attributes |= {f"with_{name}": name in named for name in ("dz", "dbias", "dw")}
    attributes |= {"with_w": with_w} | ({"accumulate": True} if "dw_total" in outputs else {})
    return Problem({"M": m, "N": n, "K": k}, attributes, padding or {}, frozenset(suite.split()))


def _trios(shapes: Iterable[tuple[int, int, int]], acts: Iterable[str]) -> tuple[Problem, ...]:
    return tuple(_problem("bench", *shape, act) for act in acts for shape in shapes)


# M tokens, N outputs and K inputs of a linear layer behind an activation of K values.
MLP_SHAPES = (
    (8192, 768, 3072),
    (8192, 3072, 768),
    (16384, 1024, 4096),
    (16384, 4096, 1024),
    (8192, 4096, 16384),
    (8192, 16384, 4096),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
)
MLP = _trios(MLP_SHAPES, ("gelu_tanh",))
MLP_RELU = _trios(MLP_SHAPES, ("relu",))
MLP_OTHER = _trios(((8192, 768, 3072), (16384, 1024, 4096)), ("gelu_erf", "silu"))

# fp32: the layers of a small network at a batch of 128, and larger ones.
_FP32_LAYERS = ((128, 10, 128), (128, 128, 256), (128, 512, 512), (512, 512, 512), (128, 1024, 1024), (2048, 1024, 1024))
FP32 = (
    *(_problem("bench", *shape, act, "float32 nk") for act in ("relu", "gelu_tanh") for shape in _FP32_LAYERS),
    _problem("bench", 128, 256, 784, "none", "float32 nk", outputs="dw"),
    _problem("bench", 8192, 768, 3072, "none", "float32 nk", outputs="dw"),
    _problem("bench", 128, 128, 256, "none", "float32 nk", outputs="dz dw"),
    _problem("bench", 512, 1024, 1024, "none", "float32 nk", outputs="dz dw"),
    _problem("bench", 128, 128, 256, "relu", "float32 nk", outputs="dz dbias"),
    _problem("bench", 512, 1024, 1024, "gelu_tanh", "float32 nk", outputs="dz dbias"),
    _problem("bench", 4096, 1024, 4096, "relu", "float32 nk"),
    _problem("bench", 4096, 4096, 4096, "gelu_tanh", "float32 nk"),
    _problem("bench", 16384, 256, 256, "relu", "float32 nk"),
    _problem("bench", 1024, 1024, 1024, "relu", "float32 kn"),
    _problem("bench", 127, 255, 783, "relu", "float32 nk"),
    _problem("bench", 2223, 1025, 1085, "gelu_tanh", "float32 nk"),
    _problem("bench", 6445, 1, 3475, "none", "float32 nk", outputs="dz dw"),
    _problem("bench", 3934, 4, 3565, "silu", "float32 kn", outputs="dz"),
    _problem("bench", 1706, 2, 924, "none", "float32 kn", outputs="dw"),
    _problem("bench", 128, 256, 256, "relu", "float32 nk", outputs="dz dbias", with_w=False),
    _problem("bench", 8192, 3072, 3072, "gelu_tanh", "float32 nk", outputs="dz dbias", with_w=False),
)

# Layers of small networks, in 16 bits: those of one for 28 x 28 images at a batch of 128, and others drawn log-uniformly from M 1 to 512
# and N and K 8 to 1024; the latter in fp32 too.
HALF_SMALL = (
    _problem("bench", 128, 10, 128, "relu"),
    _problem("bench", 128, 128, 256, "relu"),
    _problem("bench", 128, 256, 784, outputs="dw"),
    _problem("bench", 301, 33, 146, "relu"),
    _problem("bench", 47, 472, 88, "relu"),
    _problem("bench", 384, 320, 448, "relu"),
    _problem("bench", 128, 10, 128, "gelu_tanh"),
    _problem("bench", 128, 128, 256, "gelu_tanh"),
    _problem("bench", 218, 600, 64, "gelu_tanh", "float16 nk"),
    _problem("bench", 83, 152, 1000, outputs="dw"),
)
FP32_SMALL = (
    _problem("bench", 301, 33, 146, "relu", "float32 nk"),
    _problem("bench", 47, 472, 88, "relu", "float32 nk"),
    _problem("bench", 218, 600, 64, "gelu_tanh", "float32 nk"),
    _problem("bench", 83, 152, 1000, "none", "float32 nk", outputs="dw"),
)

PROBLEMS = (
    _problem("verify", 1, 8, 8),
    _problem("verify", 64, 64, 64, "relu"),
    _problem("verify", 65, 40, 1, "silu", "float16 nk", padding={"dy": 7, "w": 7, "x": 7}),
    _problem("verify", 33, 31, 29, "gelu_erf", "bfloat16 kn"),
    _problem("verify", 5, 301, 131, "gelu_tanh", "float16 nk"),
    _problem("verify", 130, 72, 200, "gelu_tanh", "float16 kn"),
    _problem("verify", 257, 264, 72, "silu", "bfloat16 kn", padding={"dy": 8, "dz": 8, "z": 8}),
    _problem("verify", 129, 136, 136, "gelu_erf", "float16 nk", padding={"w": 8, "x": 8, "dw": 8}),
    _problem("verify", 300, 328, 456, "relu", "bfloat16 nk"),
    _problem("verify", 200, 96, 520, "none", "bfloat16 nk"),
    _problem("verify", 96, 64, 72, "gelu_tanh", "bfloat16 nk", outputs="dz"),
    _problem("verify", 1600, 136, 264, "none", "bfloat16 nk", outputs="dw"),
    _problem("verify", 500, 200, 120, "none", "float16 kn", outputs="dz dw"),
    # Rows of dZ and dW that begin on 16-byte boundaries and do not end there.
    _problem("verify", 70, 30, 45, "gelu_tanh", "bfloat16 nk", padding={"dz": 3, "dw": 3, "x": 3, "z": 3, "dy": 2, "w": 3}),
    # Many steps for few tiles of dW, and more tiles of dZ than multiprocessors.
    _problem("verify", 17800, 40, 72, "relu", "bfloat16 nk"),
    # Long sums of few tiles of dZ, of which one or several lie one below the other.
    _problem("verify", 37, 2600, 136, "gelu_tanh", "bfloat16 nk"),
    _problem("verify", 230, 2051, 76, "silu", "float16 kn", outputs="dz dbias"),
    # Without W: the gradient of an activation alone.
    _problem("verify", 300, 264, 264, "gelu_tanh", outputs="dz dbias", with_w=False),
    _problem("verify", 65, 37, 37, "silu", "float16 nk", outputs="dz dbias", with_w=False, padding={"dy": 3, "z": 8}),
    _problem("verify", 9, 520, 520, "gelu_erf", outputs="dz", with_w=False, padding={"dz": 8}),
    _problem("verify", 64, 8, 8, "relu", "float16 kn", outputs="dz dbias", with_w=False),
    _problem("verify", 130, 33, 33, "none", outputs="dz dbias", with_w=False),
    # fp32: one row and column, ragged sizes and strides, many steps for few tiles of dW, more rows than a cluster has.
    _problem("verify", 1, 1, 1, "relu", "float32 nk"),
    _problem("verify", 128, 10, 96, "relu", "float32 nk"),
    _problem("verify", 65, 40, 33, "silu", "float32 nk", padding={"dy": 7, "w": 7, "x": 7}),
    _problem("verify", 33, 131, 29, "gelu_erf", "float32 kn"),
    _problem("verify", 130, 72, 200, "gelu_tanh", "float32 kn", padding={"dz": 4, "z": 4, "dw": 3}),
    _problem("verify", 300, 257, 136, "relu", "float32 nk", padding={"z": 1}),
    _problem("verify", 5, 301, 131, "none", "float32 nk", outputs="dz"),
    _problem("verify", 2100, 40, 72, "none", "float32 nk", outputs="dw"),
    _problem("verify", 600, 24, 40, "none", "float32 kn", outputs="dz dbias"),
    _problem("verify", 65, 37, 37, "silu", "float32 nk", outputs="dz dbias", with_w=False, padding={"dy": 3, "z": 8}),
    _problem("verify", 130, 264, 264, "relu", "float32 nk", outputs="dz dbias", with_w=False),
    # Few columns N, and rows for several blocks: whole rows of 16 bytes, and not.
    _problem("verify", 700, 3, 264, "gelu_tanh", "bfloat16 nk"),
    _problem("verify", 410, 2, 139, "silu", "float32 kn"),
    # dW added to what is there.
    _problem("verify", 130, 72, 45, "relu", "float32 nk", outputs="dz dbias dw_total"),
    _problem("verify", 700, 33, 40, "none", "float32 kn", outputs="dw_total", padding={"dw_total": 3}),
    _problem("verify", 100, 136, 72, "gelu_tanh", "bfloat16 nk", outputs="dz dbias dw_total"),
    _problem("verify", 65, 31, 29, "none", "float16 kn", outputs="dw_total", padding={"dw_total": 2}),
    _problem("emulated", 384, 320, 256, "gelu_tanh"),
    _problem("emulated", 128, 128, 192, "relu", "float32 nk"),
    *MLP,
    *MLP_RELU,
    *MLP_OTHER,
    _problem("bench sweep", 8192, 768, 3072, "gelu_tanh", outputs="dz"),
    _problem("bench sweep", 8192, 768, 3072, "gelu_tanh", outputs="dz dbias"),
    _problem("bench sweep", 8192, 768, 3072, "none", outputs="dw"),
    _problem("bench", 8192, 3072, 3072, "gelu_tanh", outputs="dz dbias", with_w=False),
    _problem("bench", 16384, 4096, 4096, "gelu_tanh", outputs="dz dbias", with_w=False),
    _problem("bench", 2048, 2048, 2048, "gelu_tanh"),
    _problem("bench", 1024, 1024, 1024, "gelu_tanh"),
    _problem("bench", 8192, 768, 3072, "gelu_tanh", "bfloat16 kn"),
    _problem("bench", 16384, 1024, 4096, "gelu_tanh", "float16 nk"),
    _problem("bench", 4095, 1023, 4097, "gelu_tanh"),
    # Rows off 16-byte boundaries.
    _problem("bench", 1572, 597, 213, "relu", "float16 nk"),
    _problem("bench", 3001, 2049, 1023, "gelu_tanh"),
    _problem("bench", 2223, 194, 1085, "relu"),
    _problem("bench", 6812, 28, 805, "relu", "bfloat16 kn"),
    _problem("bench", 6812, 8, 4096, "relu"),
    _problem("bench", 4095, 4097, 1023, "relu"),
    *FP32,
    *HALF_SMALL,
    *FP32_SMALL,
)

GOALS = (
    Goal(
        "trio_torch",
        "dZ, dbias, dW at MLP shapes, bf16, beside autograd",
        (*MLP, *MLP_RELU, *MLP_OTHER),
        ("torch_autograd",),
        aim=1.2,
        least=1.1,
    ),
    Goal("trio_cublaslt", "the same with tanh-GELU, beside cuBLASLt's DGELU_BGRAD", MLP, ("cublaslt_best32",), aim=1.0, least=0.9),
)


def _name_w(problem: Problem) -> tuple[str, ...]:
    return ("N", "K") if is_nk(problem) else ("K", "N")


ACTS = ("none", "relu", "gelu_tanh", "gelu_erf", "silu")
_SMOOTH = OneOf("act", SMOOTH)
_NO_DW = OneOf("with_dw", (False,))
_FP32 = OneOf("dtype", ("float32",))


def _bound(elements: int) -> tuple[Count, ...]:
    """Problems whose dZ and dW have no more elements."""
    return (Count({"M": 1, "K": 1}, max=elements), Count({"N": 1, "K": 1}, max=elements))


AXES = (
    # fp32 has kernels of its own; bf16 and fp16 share theirs.
    Axis("dtypes", {"float32": (_FP32,), "any": ()}),
    # A kernel multiplies or it does not; whole rows of 16 bytes, which tensor copies need, or any.
    Axis(
        "layout",
        {
            "without_w": (OneOf("with_w", (False,)),),
            "with_w_whole": tuple(Count({size: 1}, multiple=8) for size in ("N", "K")),
            "with_w": (),
        },
    ),
    # Which products there are, and whether dZ's slope is dear.
    Axis(
        "epilogue",
        {
            "dw_alone": (OneOf("with_dz", (False,)),),
            "dz_smooth": (_NO_DW, _SMOOTH),
            "dz_plain": (_NO_DW,),
            "smooth": (_SMOOTH,),
            "plain": (),
        },
    ),
    # Few: by the elements of dZ and dW. Else by the tiles of dZ, which are no more than multiprocessors, by the length of its
    # sums, and by its columns.
    Axis(
        "region",
        {
            "fp32_small": (_FP32, *_bound(SMALL)),
            "fp32_middling": (_FP32, *_bound(MIDDLING_FP32)),
            "half_small": (OneOf("dtype", ("bfloat16", "float16")), *_bound(SMALL)),
            "few_tiles": (Count({"M": 1, "K": 1}, max=FEW_ELEMENTS),),
            "sums_to_1k": (Count({"N": 1}, max=SHORT_SUMS - 1),),
            "sums_to_4k": (Count({"N": 1}, max=LONG_SUMS - 1),),
            "sums_beyond_wide": (Count({"K": 1}, min=WIDE),),
            "sums_beyond": (),
        },
    ),
)

OP = Op(
    name="gemm_backward",
    summary="dZ = (dY W') act'(Z), dbias and dW = X' dY of a linear layer behind an activation, in fp32, bf16 or fp16, row-major",
    tensors=(
        Tensor("dy", lambda p: ("M", "N") if has_w(p) else ("M", "K"), Role.INPUT, find_dtype, can_pad_rows=True),
        Tensor("w", _name_w, Role.INPUT, find_dtype, present=has_w, can_pad_rows=True),
        Tensor("x", ("M", "K"), Role.INPUT, find_dtype, present=lambda p: has(p, "dw"), can_pad_rows=True),
        Tensor("z", ("M", "K"), Role.INPUT, find_dtype, present=lambda p: has(p, "dz") and find_act(p) != "none", can_pad_rows=True),
        Tensor("dz", ("M", "K"), Role.OUTPUT, find_dtype, present=lambda p: has(p, "dz"), can_pad_rows=True),
        Tensor("dbias", ("K",), Role.OUTPUT, find_dtype, present=lambda p: has(p, "dbias")),
        Tensor("dw", _name_w, Role.OUTPUT, find_dtype, present=stores_weights, can_pad_rows=True),
        Tensor("dw_total", _name_w, Role.INOUT, find_dtype, present=accumulates, can_pad_rows=True, since=1),
    ),
    kernels=KERNELS,
    problems=PROBLEMS,
    reference=reference,
    tolerance=tolerance,
    cost=cost,
    population=POPULATION,
    goals=GOALS,
    choose=choose,
    accumulate="float32",
    sampling=Sampling((0,), restrict, find_axis),
    ties=(
        # Without W, Y is X: dZ is all there is.
        Tie((OneOf("with_w", (False,)),), {"with_dz": True, "with_dw": False, "accumulate": False}, (("N", "K"),)),
        Tie((OneOf("with_dz", (False,)),), {"with_dbias": False, "with_dw": True}),
        Tie((OneOf("accumulate", (True,)),), {"with_dw": True}),
    ),
    axes=AXES,
    attributes=(
        Attribute("act", ACTS, "none"),
        Attribute("dtype", ("bfloat16", "float16", "float32"), "bfloat16", passed=False),
        Attribute("w_layout", ("nk", "kn"), "nk", codes=(1, 0)),
        Attribute("with_w", (True, False), True, passed=False),
        Attribute("with_dz", (True, False), True, passed=False),
        Attribute("with_dbias", (True, False), True, passed=False),
        Attribute("with_dw", (True, False), True, passed=False),
        Attribute("accumulate", (False, True), False, passed=False, since=1),
    ),
)
