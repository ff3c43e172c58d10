"""Cliffs: neighbouring sizes whose times jump. Pure, except for the source of the times.

Around each drawn problem lie its neighbours: one size one less or one more, and the two sides of the nearest borders: multiples of 8 (which
vector accesses and tensor copies ask for) and of the edges of tiles. A pair jumps by the ratio of its times over the ratio of its work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from harness.compare.drawn.frozen_choice import FrozenChoice
from harness.spec import Op, Problem, SpecError

_ALIGNMENT = 8
_EDGES = (64, 128, 256)
# Below this a pair is no cliff: times of two launches differ by so much anyway.
JUMP = 1.1


@dataclass(frozen=True)
class Pair:
    """Two problems that differ in one size: ``step`` says which and how, from ``low`` to ``high``."""

    low: Problem
    high: Problem
    step: str


@dataclass(frozen=True)
class Cliff:
    """A pair with its times: ``jump`` is how much longer the slower one takes for its work (1.3: 30 %), ``cause`` what differs."""

    low: str
    high: str
    step: str
    low_us: float
    high_us: float
    jump: float
    slower: str
    cause: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def list_pairs(op: Op, problems: Sequence[Problem]) -> list[Pair]:
    """Return the pairs around problems, each once."""
    found: dict[tuple[str, str], Pair] = {}
    for problem in problems:
        for name, size in problem.sizes.items():
            for low in _list_steps(size):
                pair = _make_pair(op, problem, name, low)
                if pair is not None:
                    found.setdefault((pair.low.name, pair.high.name), pair)
    return list(found.values())


def _list_steps(size: int) -> list[int]:
    """Return the sizes s for which s and s + 1 are compared: about the size itself, and about the borders nearest to it."""
    borders = [max(edge, round(size / edge) * edge) for edge in (_ALIGNMENT, *_EDGES) if size >= edge // 2]
    steps = [size - 1, size, *(b - 1 for b in borders), *borders]
    return sorted({s for s in steps if s >= 1})


def _make_pair(op: Op, problem: Problem, name: str, low: int) -> Pair | None:
    """Return the pair of a size and the next one; None where the op has no such problem (sizes that are tied, say)."""
    made = []
    for size in (low, low + 1):
        free = {n: s for n, s in problem.sizes.items() if n not in {d.name for d in op.derived}}
        try:
            changed = op.complete(replace(problem, sizes=free | {name: size}))
            op.check_problem(changed)
        except SpecError:
            return None
        made.append(changed)
    return Pair(made[0], made[1], f"{name} {low} to {low + 1}")


def find_work_ratio(op: Op, pair: Pair) -> float:
    """Return the work of the higher problem over that of the lower: flops or bytes, whichever grows by less."""
    low, high = op.cost(pair.low), op.cost(pair.high)
    ratios = [b / a for a, b in ((low.flops, high.flops), (low.bytes_moved, high.bytes_moved)) if a > 0]
    return min(ratios, default=1.0)


def find_jump(work_ratio: float, low_us: float, high_us: float) -> tuple[float, bool]:
    """Return by how much the slower of two takes longer than its work says, and whether that is the higher one."""
    up, down = high_us / low_us / work_ratio, low_us / high_us
    return (up, True) if up >= down else (down, False)


def explain_jump(op: Op, pair: Pair, choices: tuple[FrozenChoice, FrozenChoice], priors: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what differs between the two problems of a pair, as far as their sizes and kernels tell."""
    found = []
    alignments = [_find_alignments(op, p) for p in (pair.low, pair.high)]
    if lost := sorted({t for t in alignments[0] if alignments[0][t] != alignments[1].get(t, alignments[0][t])}):
        found.append(f"rows of {', '.join(lost)} are whole multiples of {_ALIGNMENT} only on one side")
    low, high = (c.kernel for c in choices)
    if low != high:
        unserved = [(k, p) for k, p, c in ((low, pair.high, choices[1]), (high, pair.low, choices[0])) if k and k not in c.legal]
        found += [f"{kernel} does not serve {problem.name}" for kernel, problem in unserved] or [f"other kernels: {low} and {high}"]
    elif low in priors:
        waves = [count_waves(priors[low], p.sizes) for p in (pair.low, pair.high)]
        if waves[0] != waves[1]:
            found.append(f"{waves[0]} and {waves[1]} waves of {low}")
    return "; ".join(found) or "neither alignment, kernel nor waves differ"


def _find_alignments(op: Op, problem: Problem) -> dict[str, bool]:
    strides = op.find_facts(problem).strides
    return {name: all(s % _ALIGNMENT == 0 for s in (each if isinstance(each, tuple) else (each,))) for name, each in strides.items()}


def count_waves(prior: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Return how many times a kernel's blocks fill the chip, from a manifest's ``prior``."""
    tiles = 1
    for name, edge in prior["tile"].items():
        tiles *= -(-sizes[name] // edge)
    return -(-tiles // int(prior["slots"]))


def guess_jump(work_ratio: float, choices: tuple[FrozenChoice, FrozenChoice], priors: Mapping[str, Mapping[str, Any]], pair: Pair) -> float:
    """Return how much a pair may jump, to look at the likeliest first: by predicted times, else by waves; a change of kernel is suspect."""
    low, high = choices
    if not low.kernel or not high.kernel:
        return 0.0
    jump = find_jump(work_ratio, low.predicted_us, high.predicted_us)[0] if low.predicted_us and high.predicted_us else 1.0
    if low.kernel == high.kernel and low.kernel in priors:
        waves = [count_waves(priors[low.kernel], p.sizes) for p in (pair.low, pair.high)]
        jump = max(jump, max(waves) / min(waves))
    return jump + (0.25 if low.kernel != high.kernel else 0.0)


def make_cliffs(
    op: Op,
    pairs: Sequence[Pair],
    times: Mapping[str, float],
    choices: Mapping[str, FrozenChoice],
    priors: Mapping[str, Mapping[str, Any]],
) -> list[Cliff]:
    """Return the pairs that jump, worst first; ``times`` are microseconds by problem name, pairs without both are left out."""
    cliffs = []
    for pair in pairs:
        low, high = pair.low.name, pair.high.name
        if low not in times or high not in times:
            continue
        jump, is_up = find_jump(find_work_ratio(op, pair), times[low], times[high])
        if jump >= JUMP:
            cause = explain_jump(op, pair, (choices[low], choices[high]), priors)
            cliffs.append(Cliff(low, high, pair.step, times[low], times[high], jump, high if is_up else low, cause))
    return sorted(cliffs, key=lambda c: -c.jump)
