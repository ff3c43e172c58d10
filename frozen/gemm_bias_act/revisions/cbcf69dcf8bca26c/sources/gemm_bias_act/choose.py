"""Which variant a problem gets by default on Hopper: a table of rules, of which the first that holds decides, each with its reason.

The figures behind the reasons are medians on an H200, cold, beside the variants that lost: ``profiles/gemm_bias_act/``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.spec import Choice, Problem

from .domains import TINY_OUTPUTS, TINY_SUMS
from .numerics import ITEM_BYTES, drops, find_dtype, is_nk, is_tf32
from .space import KERNELS

_ALIGNMENT_BYTES = 16  # of rows that are copied by tensor copies or read as vectors
_NUM_SMS = 132
_MANY_COLUMNS = 8192  # tiles of 64 of them occupy nearly every multiprocessor
_FULL = 0.94  # of the waves of tiles, that smaller tiles must fill to be worth it


@dataclass(frozen=True)
class Features:
    """What of a problem decides. ``aligned``: rows of all matrices start on 16-byte boundaries."""

    m: int
    n: int
    k: int
    act: str
    fp32: bool
    tf32: bool
    nk: bool
    aligned: bool
    drops: bool

    @classmethod
    def of(cls, problem: Problem) -> Features:
        """Read them off a problem."""
        m, n, k = (problem.sizes[name] for name in ("M", "N", "K"))
        item = ITEM_BYTES[find_dtype(problem)]
        nk = is_nk(problem)
        rows = {"a": k, "b": k if nk else n, "y": n}
        rows |= {tensor: n for tensor, switch in (("z", "save_z"), ("residual", "with_residual")) if problem.attributes.get(switch, False)}
        aligned = all((length + problem.padding.get(name, 0)) * item % _ALIGNMENT_BYTES == 0 for name, length in rows.items())
        return cls(
            m,
            n,
            k,
            str(problem.attributes.get("act", "none")),
            item == 4 and not is_tf32(problem),
            is_tf32(problem),
            nk,
            aligned,
            drops(problem),
        )

    @property
    def kn_aligned(self) -> bool:
        """Return whether rows of A, and of B as [K, N], can be read as vectors."""
        return self.aligned and not self.nk

    @property
    def tiny(self) -> bool:
        """Return whether this is a layer of a small network in fp32."""
        return self.fp32 and self.m * self.n <= TINY_OUTPUTS and self.k <= TINY_SUMS

    def count_tiles(self, rows: int, columns: int) -> int:
        """Return the tiles of Y of this size."""
        return -(-self.m // rows) * -(-self.n // columns)

    def fills(self, rows: int, columns: int) -> float:
        """Return the share of the last wave's multiprocessors that tiles of Y of this size keep busy, over all waves."""
        tiles = self.count_tiles(rows, columns)
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


def _turned(*values: int) -> dict[str, int]:
    return dict(zip(("bm", "bn", "stages", "clusterm", "clustern", "group"), values, strict=True))


def _mma(bm: int, bn: int, wm: int, wn: int, stages: int, group: int) -> dict[str, int]:
    return {"bm": bm, "bn": bn, "wm": wm, "wn": wn, "stages": stages, "group": group}


def _skinny(*values: int) -> dict[str, int]:
    return dict(zip(("bm", "bn", "bk", "stages", "splits", "minblocks"), values, strict=True))


def _pipelined(*values: int) -> dict[str, int]:
    names = ("bm", "bn", "bk", "wm", "wn", "tm", "tn", "stages", "group", "minblocks", "splits")
    return dict(zip(names, values, strict=True))


RULES = (
    # Dropout
    Rule(
        lambda f: f.drops and (f.fp32 or f.tf32),
        "pipelined",
        _pipelined(64, 64, 16, 32, 64, 8, 8, 3, 8, 4, 1),
        "dropout in fp32, any alignment",
    ),
    Rule(lambda f: f.drops and f.m * f.n <= 64 * 64 * _NUM_SMS, "mma", _mma(64, 64, 32, 32, 4, 8), "dropout, few tiles: small ones"),
    Rule(lambda f: f.drops, "mma", _mma(128, 128, 64, 32, 3, 8), "dropout"),
    # TF32
    Rule(lambda f: f.tf32 and f.m <= 16, "turned_tf32", _turned(16, 128, 10, 1, 1, 8), "few rows: B streams once, k is dealt out evenly"),
    Rule(lambda f: f.tf32 and f.m <= 64, "turned_tf32", _turned(64, 128, 7, 1, 1, 8), "few rows: B streams once, k is dealt out evenly"),
    Rule(
        lambda f: f.tf32 and f.m * f.n <= 128 * 64 * _NUM_SMS,
        "tf32",
        _wgmma(128, 64, 7, 1, 1, 0),
        "few tiles: small ones, one for every multiprocessor",
    ),
    Rule(
        lambda f: f.tf32 and f.fills(128, 192) >= _FULL and f.m * f.n > 4096 * 8192,
        "tf32",
        _wgmma(128, 192, 4, 2, 1, 1),
        "many waves: one warp group's epilogue hides under the other's products",
    ),
    Rule(
        lambda f: f.tf32 and f.fills(256, 256) < 0.8 and f.k >= 2048,
        "streamk_tf32",
        _wgmma(256, 128, 4, 1, 2, 0),
        "a short last wave: its steps are dealt out",
    ),
    Rule(lambda f: f.tf32, "tf32", _wgmma(256, 128, 4, 1, 2, 0), "the largest tile moves the fewest bytes a product"),
    # fp32
    Rule(
        lambda f: f.fp32 and f.m == 1 and f.n >= _MANY_COLUMNS and f.kn_aligned,
        "skinny",
        _skinny(1, 64, 32, 4, 1, 4),
        "one row: B streams once; columns enough for every multiprocessor, no sums to exchange",
    ),
    Rule(
        lambda f: f.fp32 and f.m == 1 and f.kn_aligned,
        "skinny",
        _skinny(1, 64, 32, 8, 2, 3),
        "one row: B streams once; few columns, so that two blocks share the k of a tile",
    ),
    Rule(
        lambda f: f.fp32 and f.m <= 16 and f.n >= _MANY_COLUMNS and f.kn_aligned,
        "skinny",
        _skinny(16, 128, 32, 6, 1, 1),
        "16 rows a thread: B streams once; columns enough for every multiprocessor",
    ),
    Rule(
        lambda f: f.fp32 and f.m <= 16 and f.kn_aligned,
        "skinny",
        _skinny(16, 64, 32, 8, 2, 1),
        "16 rows a thread: B streams once; two blocks share the k of a tile",
    ),
    Rule(
        lambda f: f.fp32 and f.m <= 64 and f.n < _MANY_COLUMNS and f.kn_aligned,
        "skinny",
        _skinny(32, 128, 32, 6, 2, 1),
        "32 rows a thread, so that arithmetic and memory take about as long",
    ),
    Rule(
        lambda f: f.fp32 and f.nk and f.m <= 16 and f.aligned,
        "rows",
        {"bn": 4, "splits": 8, "stages": 2},
        "few rows of A, rows of B: they stream once, and 256 chains make a sum",
    ),
    Rule(
        lambda f: f.tiny and f.count_tiles(32, 32) <= _NUM_SMS,
        "tiny",
        {"bm": 32, "bn": 32, "stages": 6, "splits": 8},
        "few elements, short sums: the smallest tiles, all of k on its way at once, blocks that share it where multiprocessors are free",
    ),
    Rule(
        lambda f: f.tiny,
        "tiny",
        {"bm": 64, "bn": 64, "stages": 5, "splits": 8},
        "short sums: all of k on its way at once, in tiles that multiprocessors are enough for",
    ),
    Rule(
        lambda f: f.fp32 and f.count_tiles(64, 64) <= 64,
        "pipelined",
        _pipelined(64, 64, 16, 32, 64, 8, 8, 3, 8, 4, 8),
        "few tiles: the smallest, and eight blocks share the k of each",
    ),
    Rule(
        lambda f: f.fp32 and f.count_tiles(64, 64) <= _NUM_SMS,
        "pipelined",
        _pipelined(64, 64, 16, 32, 64, 8, 8, 3, 8, 4, 4),
        "few tiles: the smallest, and four blocks share the k of each",
    ),
    Rule(
        lambda f: f.fp32 and f.m <= 64,
        "pipelined",
        _pipelined(64, 256, 8, 64, 64, 8, 16, 4, 8, 2, 4),
        "one row of tiles: four blocks share the k of each",
    ),
    Rule(
        lambda f: f.fp32 and f.fills(128, 128) < 0.6,
        "pipelined",
        _pipelined(64, 128, 8, 32, 64, 8, 8, 4, 8, 4, 2),
        "few tiles: small ones, and two blocks share the k of each",
    ),
    Rule(
        lambda f: f.fp32 and f.aligned,
        "boxed",
        _pipelined(128, 128, 16, 64, 64, 8, 16, 3, 8, 2, 1),
        "tensor copies leave the main loop to fragments and multiply-adds",
    ),
    Rule(
        lambda f: f.fp32,
        "pipelined",
        _pipelined(128, 128, 8, 64, 64, 8, 16, 4, 8, 2, 1),
        "8x16 sums a thread read the fewest fragments a multiply-add",
    ),
    # bf16 and fp16
    Rule(lambda f: not f.aligned and f.k <= 64, "mma", _mma(64, 64, 32, 32, 4, 8), "rows off 16-byte boundaries, not worth a copy"),
    Rule(lambda f: not f.aligned and f.m <= 16, "turned", _turned(16, 128, 11, 1, 1, 8), "rows off 16-byte boundaries: copied"),
    Rule(lambda f: not f.aligned and f.m <= 32, "turned", _turned(32, 128, 10, 1, 1, 8), "rows off 16-byte boundaries: copied"),
    Rule(lambda f: not f.aligned and f.m <= 64, "turned", _turned(64, 128, 8, 1, 1, 8), "rows off 16-byte boundaries: copied"),
    Rule(
        lambda f: not f.aligned and f.count_tiles(128, 128) <= _NUM_SMS,
        "turned",
        _turned(128, 128, 6, 1, 1, 8),
        "rows off 16-byte boundaries: copied; few tiles",
    ),
    Rule(lambda f: not f.aligned, "turned", _turned(128, 256, 4, 1, 1, 8), "rows off 16-byte boundaries: copied"),
    Rule(
        lambda f: f.m <= 2 and f.nk and f.n >= _MANY_COLUMNS,
        "gemv",
        {"bn": 8, "tn": 4, "stages": 2},
        "one or two rows: B streams past with no barrier at all, four columns a warp",
    ),
    Rule(
        lambda f: f.m <= 2 and f.nk,
        "gemv",
        {"bn": 4, "tn": 1, "stages": 4},
        "one or two rows, few columns: one a warp makes the most warps",
    ),
    Rule(lambda f: f.m <= 8 and f.n < _MANY_COLUMNS, "decode", _decode(8, 64, 10, 8), "few columns: blocks share the k of a tile"),
    Rule(lambda f: f.m <= 16 and f.n < _MANY_COLUMNS, "decode", _decode(16, 64, 10, 8), "few columns: blocks share the k of a tile"),
    Rule(lambda f: f.m <= 8, "decode", _decode(8, 64, 6, 1), "columns enough for every multiprocessor: no sums to exchange"),
    Rule(lambda f: f.m <= 16, "decode", _decode(16, 64, 6, 1), "columns enough for every multiprocessor: no sums to exchange"),
    Rule(lambda f: f.m <= 32 and f.n < _MANY_COLUMNS, "decode", _decode(32, 64, 10, 8), "few columns: blocks share the k of a tile"),
    Rule(lambda f: f.m <= 32, "decode", _decode(32, 64, 6, 1), "columns enough for every multiprocessor: no sums to exchange"),
    Rule(lambda f: f.m <= 64 and f.n < _MANY_COLUMNS, "decode", _decode(64, 128, 9, 8), "few columns: blocks share the k of a tile"),
    Rule(lambda f: f.m <= 64, "wgmma", _wgmma(64, 128, 7, 1, 1, 1), "one row of tiles, columns enough for every multiprocessor"),
    Rule(lambda f: f.m <= 96 and f.n <= 8192, "decode", _decode(96, 128, 7, 8), "one row of tiles: blocks share the k of each"),
    Rule(lambda f: f.m <= 128 and f.n <= 8192, "decode", _decode(128, 128, 6, 8), "one row of tiles: blocks share the k of each"),
    Rule(lambda f: f.m * f.n <= 64 * 64 * _NUM_SMS, "wgmma", _wgmma(64, 64, 8, 1, 1, 1), "small tiles, one for every multiprocessor"),
    Rule(lambda f: f.m * f.n <= 128 * 64 * _NUM_SMS, "wgmma", _wgmma(128, 64, 7, 1, 1, 0), "small tiles, one for every multiprocessor"),
    Rule(
        lambda f: f.fills(128, 192) >= _FULL and f.k <= 8192,
        "wgmma",
        _wgmma(128, 192, 4, 2, 1, 1),
        "full waves: one warp group's epilogue hides under the other's products",
    ),
    Rule(
        lambda f: f.fills(256, 256) < 0.85 and f.k >= 4096 and f.count_tiles(128, 128) <= 2 * _NUM_SMS,
        "streamk",
        _wgmma(128, 128, 6, 1, 1, 0),
        "few tiles and long k: small tiles, whose steps are dealt out",
    ),
    Rule(
        lambda f: f.fills(256, 512) < 0.85 and f.k >= 2048,
        "streamk",
        _wgmma(128, 256, 4, 2, 1, 0),
        "a short last wave: its steps are dealt out",
    ),
    Rule(lambda f: True, "wgmma", _wgmma(128, 256, 4, 2, 1, 0), "the largest tile moves the fewest bytes a product"),
)


def choose(problem: Problem) -> Choice:
    """Return the default variant for a problem and the reason. Pure; every problem of the op has one."""
    features = Features.of(problem)
    rule = next(r for r in RULES if r.holds(features))
    kernel = next(k for k in KERNELS if k.name == rule.kernel)
    return Choice(kernel.bind(rule.values), rule.reason)
