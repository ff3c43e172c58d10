"""Which variant a problem gets by default: a table of rules, of which the first that holds decides, each with its reason.

The figures behind the reasons are medians on an H200, cold, beside the variants that lost: ``profiles/gemm_bias_act/``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.spec import Choice, Problem

from .numerics import ITEM_BYTES, find_dtype, is_nk, is_tf32
from .space import KERNELS

_ALIGNMENT_BYTES = 16  # of rows that are copied by tensor copies or read as vectors
_NUM_SMS = 132
_SMOOTH = ("gelu_tanh", "gelu_erf", "silu")


@dataclass(frozen=True)
class Features:
    """What of a problem decides. ``aligned``: rows of all matrices start on 16-byte boundaries."""

    m: int
    n: int
    k: int
    act: str
    half: bool
    tf32: bool
    nk: bool
    aligned: bool

    @classmethod
    def of(cls, problem: Problem) -> Features:
        """Read them off a problem."""
        m, n, k = (problem.sizes[name] for name in ("M", "N", "K"))
        item = ITEM_BYTES[find_dtype(problem)]
        nk = is_nk(problem)
        rows = {"a": k, "b": k if nk else n, "y": n} | ({"z": n} if problem.attributes.get("save_z", False) else {})
        aligned = all((length + problem.padding.get(name, 0)) * item % _ALIGNMENT_BYTES == 0 for name, length in rows.items())
        return cls(m, n, k, str(problem.attributes.get("act", "none")), item == 2, is_tf32(problem), nk, aligned)

    def fills(self, rows: int, columns: int) -> float:
        """Return the share of the last wave's multiprocessors that tiles of Y of this size keep busy, over all waves."""
        tiles = -(-self.m // rows) * -(-self.n // columns)
        return tiles / (-(-tiles // _NUM_SMS) * _NUM_SMS)


@dataclass(frozen=True)
class Rule:
    """A variant for the problems on which ``holds`` is true."""

    holds: Callable[[Features], bool]
    kernel: str
    values: Mapping[str, int]
    reason: str


def _wgmma(bm: int, bn: int, stages: int, clusterm: int, clustern: int, pingpong: int, group: int = 8) -> dict[str, int]:
    names = ("bm", "bn", "stages", "clusterm", "clustern", "pingpong", "group")
    return dict(zip(names, (bm, bn, stages, clusterm, clustern, pingpong, group), strict=True))


def _decode(bm: int, bn: int, stages: int, splits: int) -> dict[str, int]:
    return {"bm": bm, "bn": bn, "stages": stages, "splits": splits}


def _pipelined(*values: int) -> dict[str, int]:
    names = ("bm", "bn", "bk", "wm", "wn", "tm", "tn", "stages", "group", "minblocks", "splits")
    return dict(zip(names, values, strict=True))


RULES = (
    Rule(
        lambda f: f.tf32 and f.m * f.n <= 128 * 64 * _NUM_SMS,
        "tf32",
        _wgmma(128, 64, 7, 1, 1, 0),
        "TF32, few tiles: small ones, one for every multiprocessor",
    ),
    Rule(lambda f: f.tf32, "tf32", _wgmma(256, 128, 4, 1, 2, 0), "TF32: the largest tile moves the fewest bytes a product"),
    Rule(
        lambda f: not f.half and f.fills(128, 128) < 0.6,
        "pipelined",
        _pipelined(64, 128, 8, 32, 64, 8, 8, 4, 8, 4, 1),
        "few tiles: 64x128 ones keep twice as many multiprocessors busy",
    ),
    Rule(
        lambda f: not f.half,
        "pipelined",
        _pipelined(128, 128, 8, 64, 64, 8, 16, 4, 8, 2, 1),
        "fp32: 8x16 sums a thread read the fewest fragments a multiply-add; takes any alignment",
    ),
    Rule(
        lambda f: not f.aligned and f.m * f.n <= 64 * 64 * _NUM_SMS,
        "mma",
        {"bm": 64, "bn": 64, "wm": 32, "wn": 32, "stages": 4, "group": 8},
        "rows off 16-byte boundaries, few tiles",
    ),
    Rule(
        lambda f: not f.aligned, "mma", {"bm": 128, "bn": 128, "wm": 64, "wn": 32, "stages": 3, "group": 8}, "rows off 16-byte boundaries"
    ),
    Rule(
        lambda f: f.m <= 2 and f.nk and f.n >= 8192,
        "gemv",
        {"bn": 8, "tn": 4, "stages": 2},
        "one or two rows, many columns: streams B with no barrier at all",
    ),
    Rule(lambda f: f.m <= 8 and f.n < 8192, "decode", _decode(8, 64, 10, 2), "few columns: two blocks share the k of a tile"),
    Rule(lambda f: f.m <= 16 and f.n < 8192, "decode", _decode(16, 64, 10, 2), "few columns: two blocks share the k of a tile"),
    Rule(lambda f: f.m <= 16, "decode", _decode(16, 64, 6, 1), "columns enough for every multiprocessor: no sums to exchange"),
    Rule(lambda f: f.m <= 32 and f.n < 8192, "decode", _decode(32, 64, 10, 2), "few columns: two blocks share the k of a tile"),
    Rule(lambda f: f.m <= 32, "decode", _decode(32, 64, 6, 1), "columns enough for every multiprocessor: no sums to exchange"),
    Rule(lambda f: f.m <= 64 and f.n < 8192, "decode", _decode(64, 64, 8, 2), "few columns: two blocks share the k of a tile"),
    Rule(lambda f: f.m <= 64, "wgmma", _wgmma(64, 128, 7, 1, 1, 1), "one row of tiles, columns enough for every multiprocessor"),
    Rule(lambda f: f.m <= 128 and f.n <= 8192, "decode", _decode(128, 64, 8, 2), "one row of tiles: two blocks share the k of each"),
    Rule(lambda f: f.m * f.n <= 64 * 64 * _NUM_SMS, "wgmma", _wgmma(64, 64, 8, 1, 1, 1), "small tiles, one for every multiprocessor"),
    Rule(lambda f: f.m * f.n <= 128 * 64 * _NUM_SMS, "wgmma", _wgmma(128, 64, 7, 1, 1, 0), "small tiles, one for every multiprocessor"),
    Rule(
        lambda f: f.k <= 2048 or (f.m * f.n > 4096 * 8192 and f.k <= 8192),
        "wgmma",
        _wgmma(128, 192, 4, 2, 1, 1),
        "short k, or many waves: the epilogue of one warp group hides under the products of the other",
    ),
    Rule(lambda f: True, "wgmma", _wgmma(128, 256, 4, 2, 1, 0), "long k: the largest tile moves the fewest bytes a product"),
)


def choose(problem: Problem) -> Choice:
    """Return the default variant for a problem and the reason. Pure; every problem of the op has one."""
    features = Features.of(problem)
    rule = next(r for r in RULES if r.holds(features))
    kernel = next(k for k in KERNELS if k.name == rule.kernel)
    return Choice(kernel.bind(rule.values), rule.reason)
