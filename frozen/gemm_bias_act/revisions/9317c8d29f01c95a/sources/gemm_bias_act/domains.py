"""What each kernel of gemm_bias_act serves, as data, and the axes that divide problems into the buckets of the frozen set.

A domain is what ``check_params`` of ``launcher.cu`` lets through; ``promote`` holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.spec import Axis, Count, OneOf, Rows

Values = Mapping[str, int]
Conditions = tuple[OneOf | Count | Rows, ...]

_MAX_EXTENT = 2**31 - 1 - 1024
_MAX_GRID_YZ = 65535


def find_tile(t: Values) -> Values:
    """Return the rows and columns of Y that a block computes."""
    return {"M": t["bm"], "N": t["bn"]}


def _bound_sizes(t: Values) -> Conditions:
    tiles = Count({"M": max(t.get("bm", 0), 1), "N": max(t.get("bn", 0), 1)}, max=_MAX_EXTENT // 64)
    return (*(Count({name: 1}, max=_MAX_EXTENT) for name in ("M", "N", "K")), tiles)


def serve_fp32(t: Values) -> Conditions:
    """Any problem in full fp32 with B as [K, N]."""
    return (OneOf("dtype", ("float32",)), OneOf("precision", ("ieee",)), OneOf("b_layout", ("kn",)), *_bound_sizes(t))


def serve_vector_rows(t: Values) -> Conditions:
    """Of these, those whose rows of A and B are made of whole float4."""
    return (*serve_fp32(t), Rows("a", 16, 4), Rows("b", 16, 4))


def serve_short_strides(t: Values) -> Conditions:
    """Of these, those whose offsets within a tile of A fit 32 bits."""
    return (*serve_fp32(t), Rows("a", max_stride=(2**32 - 1) // t["bm"]))


def serve_few_fp32_rows(t: Values) -> Conditions:
    """Of these, those whose tiles fit the grid and whose rows of B are made of whole float4."""
    tiles = (Count({"N": t["bn"]}, max=_MAX_GRID_YZ), Count({"M": t["bm"]}, max=_MAX_GRID_YZ))
    return (*serve_fp32(t), *tiles, Rows("b", 16, 4))


def serve_tf32(t: Values) -> Conditions:
    """Any fp32 problem that asks for TF32, with B as [N, K], whose matrices the tensor copies can address."""
    chosen = (OneOf("dtype", ("float32",)), OneOf("precision", ("tf32",)), OneOf("b_layout", ("nk",)))
    return (*chosen, *_bound_sizes(t), *(Rows(name, 16, 4) for name in ("a", "b", "y", "z")))


def serve_half(t: Values) -> Conditions:
    """Any problem of 16-bit floats."""
    return (OneOf("dtype", ("bfloat16", "float16")), OneOf("precision", ("ieee",)), *_bound_sizes(t))


def serve_mappable(t: Values) -> Conditions:
    """Of these, those whose matrices the tensor copies can address."""
    return (*serve_half(t), *(Rows(name, 16, 8) for name in ("a", "b", "y", "z")))


def serve_few_rows(t: Values) -> Conditions:
    """Of these, those of at most 4 rows, with B as [N, K] and whole chunks of 8."""
    rows = (Count({"M": 1}, max=4), Count({"K": 1}, multiple=8), Rows("a", 16, 8), Rows("b", 16, 8))
    return (*serve_half(t), OneOf("b_layout", ("nk",)), *rows)


def serve_decode(t: Values) -> Conditions:
    """Of these, those whose tiles fit the grid and whose operands the tensor copies can address."""
    tiles = (Count({"N": t["bn"]}, max=_MAX_GRID_YZ), Count({"M": t["bm"]}, max=_MAX_GRID_YZ))
    return (*serve_half(t), *tiles, Rows("a", 16, 8), Rows("b", 16, 8))


# fp32 kernels compute alike whatever the epilogue; of 16-bit ones a smooth activation and a second output cost time of their own.
# Regions of rows: a matrix-vector product, products that the weights' bytes bound, and those with tiles enough for the chip or too few.
_FEW_TILES = 132 * 128 * 128
AXES = (
    Axis(
        "dtypes",
        {
            "tf32": (OneOf("precision", ("tf32",)),),
            **{name: (OneOf("dtype", (name,)),) for name in ("float32", "bfloat16", "float16")},
        },
    ),
    Axis("layout", {name: (OneOf("b_layout", (name,)),) for name in ("kn", "nk")}),
    Axis(
        "epilogue",
        {
            "saves_z": (OneOf("save_z", (True,)),),
            "plain": (OneOf("act", ("none", "relu")),),
            "smooth": (OneOf("act", ("gelu_tanh", "gelu_erf", "silu")),),
        },
    ),
    Axis(
        "region",
        {
            "rows_to_4": (Count({"M": 1}, max=4),),
            "rows_to_128": (Count({"M": 1}, max=128),),
            "few_tiles": (Count({"M": 1, "N": 1}, max=_FEW_TILES),),
            "many_tiles": (),
        },
    ),
)
