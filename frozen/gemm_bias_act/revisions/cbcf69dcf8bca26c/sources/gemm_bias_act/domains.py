"""What each kernel of gemm_bias_act serves, as data, and the axes that divide problems into the buckets of the frozen set.

``supports`` is generated from the domains.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.spec import Axis, Count, OneOf, Rows

Values = Mapping[str, int]
Conditions = tuple[OneOf | Count | Rows, ...]

_MAX_EXTENT = 2**31 - 1 - 1024
_MAX_GRID_YZ = 65535
_MAX_COPIES = (2**31 - 1) // 8  # parts of 256 elements of a row, of operands that are copied


def find_tile(t: Values) -> Values:
    """Return the rows and columns of Y that a block computes."""
    return {"M": t["bm"], "N": t["bn"]}


_SPLIT_K = 512  # steps of k are dealt out among blocks: a tile as deep as this is the least that a wave of them can differ by


def find_split_tile(t: Values) -> Values:
    """Return the same of a kernel that deals the steps of k out evenly: its waves end together, whatever the number of tiles."""
    return find_tile(t) | {"K": _SPLIT_K}


def find_even_tile(t: Values) -> Values:
    """Return the same of one that divides its rows evenly: rows are padded to less than half of bm a tile."""
    return find_split_tile(t) | {"M": t["bm"] // 2}


def _bound_sizes(t: Values) -> Conditions:
    tiles = Count({"M": max(t.get("bm", 0), 1), "N": max(t.get("bn", 0), 1)}, max=_MAX_EXTENT // 64)
    return (*(Count({name: 1}, max=_MAX_EXTENT) for name in ("M", "N", "K")), tiles)


# What most kernels have no code for.
_WITHOUT_DROPOUT = OneOf("with_dropout", (False,))


def serve_fp32_and_dropout(t: Values) -> Conditions:
    """Any problem in full fp32."""
    return (OneOf("dtype", ("float32",)), OneOf("precision", ("ieee",)), *_bound_sizes(t))


def serve_short_strides(t: Values) -> Conditions:
    """Of these, those whose offsets within a tile of A fit 32 bits."""
    return (*serve_fp32_and_dropout(t), Rows("a", max_stride=(2**32 - 1) // t["bm"]))


def serve_fp32(t: Values) -> Conditions:
    """Any problem in full fp32 without dropout."""
    return (*serve_fp32_and_dropout(t), _WITHOUT_DROPOUT)


def serve_any_dtype(t: Values) -> Conditions:
    """Any problem without dropout that does not ask for TF32."""
    return (OneOf("precision", ("ieee",)), *_bound_sizes(t), _WITHOUT_DROPOUT)


def serve_fp32_kn(t: Values) -> Conditions:
    """Of these, those with B as [K, N]."""
    return (*serve_fp32(t), OneOf("b_layout", ("kn",)))


def serve_vector_rows(t: Values) -> Conditions:
    """Of these, those whose rows of A and B are made of whole float4."""
    return (*serve_fp32_kn(t), Rows("a", 16, 4), Rows("b", 16, 4))


def serve_boxes(t: Values) -> Conditions:
    """Any problem in full fp32 without dropout whose rows of A and B are made of whole float4."""
    return (*serve_fp32(t), Rows("a", 16, 4), Rows("b", 16, 4))


def serve_few_fp32_rows(t: Values) -> Conditions:
    """Of these, those whose tiles fit the grid and whose rows of B are made of whole float4."""
    tiles = (Count({"N": t["bn"]}, max=_MAX_GRID_YZ), Count({"M": t["bm"]}, max=_MAX_GRID_YZ))
    return (*serve_fp32_kn(t), *tiles, Rows("b", 16, 4))


def _serve_tf32(t: Values) -> Conditions:
    """Any fp32 problem that asks for TF32, with B as [N, K], without dropout."""
    chosen = (OneOf("dtype", ("float32",)), OneOf("precision", ("tf32",)), OneOf("b_layout", ("nk",)), _WITHOUT_DROPOUT)
    return (*chosen, *_bound_sizes(t))


def serve_tf32(t: Values) -> Conditions:
    """Of these, those whose matrices the tensor copies can address."""
    return (*_serve_tf32(t), Count({"N": 1}, multiple=4), *(Rows(name, 16, 4) for name in ("a", "b", "y", "z", "residual")))


# Operands whose rows are off 16-byte boundaries are copied first, which only the parts of a row limit.
_COPIED: Conditions = (
    *(Count({rows: 1, columns: 256}, max=_MAX_COPIES) for rows, columns in (("M", "K"), ("N", "K"), ("K", "N"))),
    Rows("a", 16),
    Rows("b", 16),
)


def serve_any_tf32(t: Values) -> Conditions:
    """Any fp32 problem that asks for TF32, with B as [N, K], without dropout, whose operands begin on 16-byte boundaries."""
    return (*_serve_tf32(t), *_COPIED)


def serve_few_rows_nk(t: Values) -> Conditions:
    """Any problem in full fp32 without dropout of at most 16 rows, with B as [N, K] and whole chunks of 4."""
    rows = (Count({"M": 1}, max=16), Count({"K": 1}, multiple=4), Rows("a", 16, 4), Rows("b", 16, 4))
    return (*serve_fp32(t), OneOf("b_layout", ("nk",)), *rows)


def serve_half_and_dropout(t: Values) -> Conditions:
    """Any problem of 16-bit floats."""
    return (OneOf("dtype", ("bfloat16", "float16")), OneOf("precision", ("ieee",)), *_bound_sizes(t))


def serve_half(t: Values) -> Conditions:
    """Any problem of 16-bit floats without dropout."""
    return (*serve_half_and_dropout(t), _WITHOUT_DROPOUT)


def serve_mappable(t: Values) -> Conditions:
    """Of these, those whose matrices the tensor copies can address; rows of Y end on 16-byte boundaries, since whole units are stored."""
    return (*serve_half(t), Count({"N": 1}, multiple=8), *(Rows(name, 16, 8) for name in ("a", "b", "y", "z", "residual")))


def serve_any_half(t: Values) -> Conditions:
    """Of these, those whose operands begin on 16-byte boundaries; their rows, and those of Y and Z, may begin anywhere."""
    return (*serve_half(t), *_COPIED)


def serve_few_rows(t: Values) -> Conditions:
    """Of these, those of at most 4 rows, with B as [N, K] and whole chunks of 8."""
    rows = (Count({"M": 1}, max=4), Count({"K": 1}, multiple=8), Rows("a", 16, 8), Rows("b", 16, 8))
    return (*serve_half(t), OneOf("b_layout", ("nk",)), *rows)


def serve_decode(t: Values) -> Conditions:
    """Of these, those whose tiles fit the grid and whose operands the tensor copies can address."""
    tiles = (Count({"N": t["bn"]}, max=_MAX_GRID_YZ), Count({"M": t["bm"]}, max=_MAX_GRID_YZ))
    return (*serve_half(t), *tiles, Rows("a", 16, 8), Rows("b", 16, 8))


# Layers of small networks: elements of Y, in fp32 and in 16 bits, and terms of a sum, up to which latencies are what a product costs.
TINY_OUTPUTS, TINY_HALF_OUTPUTS, TINY_SUMS = 2**18, 2**16, 1024


def _make_regions() -> dict[str, Conditions]:
    """Few rows by the tile of rows that holds them, apart for wide products, whose blocks fill the chip; then by the elements of Y."""
    wide = Count({"N": 1}, min=8192)
    regions: dict[str, Conditions] = {}
    for rows in (2, 8, 16, 32, 128):
        if rows == 32:  # fewer than 17 rows are read as a stream, however short
            ieee, short = OneOf("precision", ("ieee",)), Count({"K": 1}, max=TINY_SUMS)
            regions["fp32_tiny"] = (OneOf("dtype", ("float32",)), ieee, Count({"M": 1, "N": 1}, max=TINY_OUTPUTS), short)
            halves = OneOf("dtype", ("bfloat16", "float16"))
            regions["half_tiny"] = (halves, ieee, Count({"M": 1, "N": 1}, max=TINY_HALF_OUTPUTS), short)
        few = Count({"M": 1}, max=rows)
        regions |= {f"rows_to_{rows}_wide": (few, wide), f"rows_to_{rows}": (few,)}
    # A wave of 128 x 128 tiles on 132 multiprocessors is 2.2 million elements.
    for name, most in (("512k", 2**19), ("2m", 2**21), ("8m", 2**23), ("20m", 20 * 2**20)):
        regions[f"outputs_to_{name}"] = (Count({"M": 1, "N": 1}, max=most),)
    return regions | {"outputs_beyond": ()}


# fp32 kernels compute alike whatever the epilogue; of 16-bit ones a smooth activation and a second output cost time of their own.
AXES = (
    Axis(
        "dtypes",
        {
            "tf32": (OneOf("precision", ("tf32",)),),
            **{name: (OneOf("dtype", (name,)),) for name in ("float32", "bfloat16", "float16")},
        },
    ),
    # Whole rows of 16 bytes, which tensor copies need, or any.
    Axis(
        "layout",
        {
            **{f"{name}_whole": (OneOf("b_layout", (name,)), *(Count({s: 1}, multiple=8) for s in ("N", "K"))) for name in ("kn", "nk")},
            **{name: (OneOf("b_layout", (name,)),) for name in ("kn", "nk")},
        },
    ),
    Axis(
        "epilogue",
        {
            "saves_z": (OneOf("save_z", (True,)),),
            "plain": (OneOf("act", ("none", "relu")),),
            "smooth": (OneOf("act", ("gelu_tanh", "gelu_erf", "silu")),),
        },
    ),
    Axis("region", _make_regions()),
)
