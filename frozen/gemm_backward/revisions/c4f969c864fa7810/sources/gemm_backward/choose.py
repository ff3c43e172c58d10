"""Which variant a problem gets by default: a table of rules, of which the first that holds decides, each with its reason.

The figures behind the reasons are in ``profiles/gemm_backward/``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.spec import Choice, Problem

from .numerics import accumulates, find_act, find_dtype, has_w
from .space import FFMA_NAMES, KERNELS, MMA_NAMES, TINY_NAMES, WGMMA_NAMES, bind

_NUM_SMS = 132
SMOOTH = ("gelu_tanh", "gelu_erf", "silu")
# Where the choice changes, and with it the bucket: elements of dZ in a 128 x 128 tile for every multiprocessor; the length N of its sums;
# its columns.
FEW_ELEMENTS, SHORT_SUMS, LONG_SUMS, WIDE = 128 * 128 * _NUM_SMS, 1024, 4096, 8192
# Elements of dZ, and of dW, that small tiles and, in fp32, middling ones are for; two of them for every multiprocessor.
SMALL, MIDDLING_FP32 = 2 * 32 * 32 * _NUM_SMS, 2 * 64 * 64 * _NUM_SMS


@dataclass(frozen=True)
class Features:
    """What of a problem decides."""

    m: int
    n: int
    k: int
    smooth: bool
    has_w: bool
    fp32: bool
    accumulates: bool

    @classmethod
    def of(cls, problem: Problem) -> Features:
        """Read them off a problem."""
        m, n, k = (problem.sizes[name] for name in ("M", "N", "K"))
        return cls(m, n, k, find_act(problem) in SMOOTH, has_w(problem), find_dtype(problem) == "float32", accumulates(problem))

    @property
    def most_elements(self) -> int:
        """Return the elements of dZ or of dW, whichever has more."""
        return max(self.m, self.n) * self.k


@dataclass(frozen=True)
class Rule:
    """A variant for the problems on which ``holds`` is true."""

    holds: Callable[[Features], bool]
    kernel: str
    values: Mapping[str, int]
    reason: str


def _wgmma(*values: int) -> Mapping[str, int]:
    return bind(WGMMA_NAMES, values)[0]


def _ffma(*values: int) -> Mapping[str, int]:
    return bind(FFMA_NAMES, values)[0]


RULES = (
    Rule(lambda f: not f.has_w, "streamed", {"rows": 64, "unroll": 4}, "no product: one pass over memory"),
    Rule(
        lambda f: f.most_elements <= SMALL // 2,
        "tiny",
        bind(TINY_NAMES, (32, 32, 5, 4))[0],
        "few elements: the smallest tiles in one launch, whose k groups of warps share, and blocks where multiprocessors are free",
    ),
    Rule(
        lambda f: f.fp32 and f.most_elements <= SMALL,
        "ffma",
        _ffma(32, 32, 32, 16, 32, 4, 4, 3, 4, 8, 2),
        "few elements: the smallest tiles, whose k four groups of warps share",
    ),
    Rule(
        lambda f: f.most_elements <= SMALL,
        "tiny",
        bind(TINY_NAMES, (64, 64, 4, 4))[0],
        "few elements: small tiles in one launch",
    ),
    Rule(
        lambda f: f.fp32 and f.most_elements <= MIDDLING_FP32,
        "ffma",
        _ffma(64, 64, 16, 32, 32, 4, 8, 4, 2, 8, 2),
        "small tiles, one for every multiprocessor",
    ),
    Rule(
        lambda f: f.fp32,
        "ffma",
        _ffma(128, 128, 8, 64, 64, 8, 16, 4, 1, 8, 2),
        "large tiles read the fewest fragments a multiply-add",
    ),
    Rule(
        lambda f: f.accumulates,
        "mma",
        bind(MMA_NAMES, (128, 128, 64, 32, 3, 8))[0],
        "dW is added in registers, which tensor copies do not pass",
    ),
    Rule(
        lambda f: f.m * f.k <= FEW_ELEMENTS,
        "wgmma",
        _wgmma(64, 128, 7, 2, 1, 1, 1, 8, 128, 128, 1, 1, 0),
        "small tiles, one for every multiprocessor",
    ),
    Rule(
        lambda f: f.n >= LONG_SUMS and f.k < WIDE,
        "wgmma",
        _wgmma(128, 256, 3, 4, 2, 1, 0, 8, 128, 256, 2, 1, 0),
        "long sums: the largest tile moves the fewest bytes, and its epilogue is a small share",
    ),
    Rule(
        lambda f: f.n < SHORT_SUMS and f.smooth,
        "wgmma",
        _wgmma(64, 192, 5, 3, 1, 1, 1, 8, 128, 256, 2, 1, 0),
        "short sums and a dear slope: low tiles leave registers for a slope that hides under the other warp group's products",
    ),
    Rule(
        lambda f: f.n >= LONG_SUMS or not f.smooth,
        "wgmma",
        _wgmma(128, 192, 4, 3, 2, 1, 1, 8, 128, 256, 2, 1, 0),
        "the largest tile whose epilogue hides under the other warp group's products; many of them, or a slope for nothing",
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
