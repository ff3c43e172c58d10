"""Which variant a problem gets by default: a table of rules, of which the first that holds decides, each with its reason.

The figures behind the reasons are in ``profiles/gemm_backward/``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.spec import Choice, Problem

from .numerics import ITEM_BYTES, find_act, has, has_w, is_nk
from .space import KERNELS, MMA_NAMES, WGMMA_NAMES, bind

_ALIGNMENT_BYTES = 16  # of rows that tensor copies read and write
NUM_SMS = 132
_SMOOTH = ("gelu_tanh", "gelu_erf", "silu")


@dataclass(frozen=True)
class Features:
    """What of a problem decides. ``aligned``: rows of all matrices start on 16-byte boundaries."""

    m: int
    n: int
    k: int
    smooth: bool
    aligned: bool
    has_w: bool

    @classmethod
    def of(cls, problem: Problem) -> Features:
        """Read them off a problem."""
        m, n, k = (problem.sizes[name] for name in ("M", "N", "K"))
        rows = {"dy": n if has_w(problem) else k}
        if has(problem, "dz"):
            rows |= {"w": k if is_nk(problem) or not has_w(problem) else n, "dz": k} | ({"z": k} if find_act(problem) != "none" else {})
        if has(problem, "dw"):
            rows |= {"x": k, "dw": k if is_nk(problem) else n}
        aligned = all((length + problem.padding.get(name, 0)) * ITEM_BYTES % _ALIGNMENT_BYTES == 0 for name, length in rows.items())
        return cls(m, n, k, find_act(problem) in _SMOOTH, aligned, has_w(problem))


@dataclass(frozen=True)
class Rule:
    """A variant for the problems on which ``holds`` is true."""

    holds: Callable[[Features], bool]
    kernel: str
    values: Mapping[str, int]
    reason: str


def _wgmma(*values: int) -> Mapping[str, int]:
    return bind(WGMMA_NAMES, values)[0]


def _mma(*values: int) -> Mapping[str, int]:
    return bind(MMA_NAMES, values)[0]


RULES = (
    Rule(lambda f: not f.has_w, "streamed", {"rows": 64, "unroll": 4}, "no product: one pass over memory"),
    Rule(
        lambda f: not f.aligned and f.m * f.k <= 64 * 64 * NUM_SMS,
        "mma",
        _mma(64, 64, 32, 32, 4, 8),
        "rows off 16-byte boundaries, few tiles",
    ),
    Rule(lambda f: not f.aligned, "mma", _mma(128, 128, 64, 32, 3, 8), "rows off 16-byte boundaries"),
    Rule(
        lambda f: f.m * f.k <= 128 * 128 * NUM_SMS,
        "wgmma",
        _wgmma(64, 128, 7, 2, 1, 1, 1, 8, 128, 128, 1, 1, 0),
        "small tiles, one for every multiprocessor",
    ),
    Rule(
        lambda f: f.n >= 4096,
        "wgmma",
        _wgmma(128, 256, 3, 4, 2, 1, 0, 8, 128, 256, 2, 1, 0),
        "long sums: the largest tile moves the fewest bytes, and its epilogue is a small share",
    ),
    Rule(
        lambda f: f.n < 1024 and f.smooth,
        "wgmma",
        _wgmma(128, 128, 4, 4, 2, 1, 1, 8, 128, 256, 2, 1, 0),
        "short sums and a dear slope: all of a tile's Z is on its way before its products",
    ),
    Rule(
        lambda f: True,
        "wgmma",
        _wgmma(128, 128, 5, 2, 2, 1, 1, 8, 128, 256, 2, 1, 0),
        "act' and the sums of columns hide under the other warp group's products",
    ),
)


def choose(problem: Problem) -> Choice:
    """Return the default variant for a problem and the reason. Pure; every problem of the op has one."""
    features = Features.of(problem)
    rule = next(r for r in RULES if r.holds(features))
    kernel = next(k for k in KERNELS if k.name == rule.kernel)
    return Choice(kernel.bind(rule.values), rule.reason)
