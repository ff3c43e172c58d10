"""Which problems and inputs a verification runs: the op's own problems, sizes that the op does not list, and the distributions."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.spec import PLACE_DISTRIBUTIONS, VALUE_DISTRIBUTIONS, Op, Problem
from harness.verify.inputs import LAST_OF_ALL
from harness.verify.unlisted import draw_problems, draw_scalars, settle_sizes
from harness.verify.unlisted_corners import draw_corner_problems
from harness.verify.unlisted_large import draw_large_problems


@dataclass(frozen=True)
class Effort:
    """How much is verified.

    Every problem is verified on normal inputs with the whole protocol. The other distributions run once each on problems of at most
    ``max_extra_flops`` or bytes moved. ``num_hidden`` problems of sizes that the op does not list are added, each of at most
    ``max_hidden_flops``, so that a kernel which is right for the listed sizes alone is found. On an emulated device each problem
    runs under ``schedules`` orders of blocks and warps, whose results must have the same bits.

    The following are 0 where only what is listed is to be proved. Of problems that are drawn, with sizes, row strides and base addresses
    of their own, ``num_drawn`` that the variant serves are verified, each of at most ``max_drawn_bytes`` and ``max_drawn_flops``, also on
    inputs with a value that stands out; of those as large as the bench problems ``num_large`` are judged in part; and one small problem is
    launched ``num_launches`` times. ``seed`` draws others. With drawn problems come those of at most ``max_corner_bytes`` in which one
    thing alone is special, and of large ones an op of several sizes has more.

    A verification that leaves out the listed problems of more than ``max_listed_flops`` or bytes moved is not complete.
    """

    max_extra_flops: float = 4e6
    num_hidden: int = 4
    max_hidden_flops: float = 32e6
    schedules: int = 0
    num_drawn: int = 0
    num_large: int = 0
    num_launches: int = 0
    max_drawn_bytes: float = 2.0**15
    max_corner_bytes: float = 2.0**16
    max_drawn_flops: float = 8e6
    seed: int = 0
    max_listed_flops: float = math.inf

    @property
    def proof(self) -> str:
        """What a verdict of this effort is worth: ``listed`` or ``drawn``, which includes it."""
        wanted = THOROUGH
        is_drawn = all(getattr(self, name) >= getattr(wanted, name) for name in ("num_drawn", "num_large", "num_launches"))
        return "drawn" if is_drawn else "listed"


# What ``verify`` and ``promote`` ask for; ``bench`` is content with what is listed.
THOROUGH = Effort(num_drawn=12, num_large=10, num_launches=3072)


def includes_proof(figures: Mapping[str, Any], proof: str) -> bool:
    """Return whether a recorded verdict proved as much as ``proof`` asks for."""
    return proof == "listed" or figures.get("proof") == proof


# How many are drawn for each that is to be served: a kernel may serve one kind of problem alone, and one alignment in four.
_DRAWN_PER_SERVED = 8


@dataclass(frozen=True)
class Step:
    """One problem with the distributions to run beside ``normal``.

    A ``large`` one is judged in part, on the first of them alone; then ``whole``, where that is wanted and it is small enough.
    """

    problem: Problem
    distributions: tuple[str, ...]
    hidden: bool = False
    large: bool = False
    whole: bool = False

    @property
    def is_drawn(self) -> bool:
        """Whether the problem is none of the op's own, nor of the few that go with them."""
        return "drawn" in self.problem.suites


def find_size(op: Op, problem: Problem) -> float:
    """Return a figure of the work in a problem: its flops or its bytes, whichever is larger."""
    cost = op.cost(problem)
    return max(cost.flops, cost.bytes_moved)


def make_hidden_problems(op: Op, effort: Effort) -> list[Problem]:
    """Derive problems with other sizes from the listed ones: each size becomes a random one from 1 to twice its value.

    The choice is seeded by the op's name, thus the same on every machine; attributes and strides are those of the listed problem, scalars
    are drawn, and sizes agree in what the op ties together.
    """
    bases = [p for p in op.select_problems("verify") if find_size(op, p) <= effort.max_hidden_flops]
    if not bases:
        return []
    seed = int.from_bytes(hashlib.sha256(f"hidden\0{op.name}".encode()).digest()[:16], "little")
    rng = np.random.Generator(np.random.PCG64(seed))
    listed = {p.name for p in op.problems}
    found: dict[str, Problem] = {}
    for index in rng.permutation(max(len(bases), effort.num_hidden))[: effort.num_hidden]:
        base = bases[int(index) % len(bases)]
        for _ in range(16):
            sizes = {name: int(rng.integers(1, 2 * size, endpoint=True)) for name, size in base.sizes.items()}
            problem = settle_sizes(op, base, sizes, draw_scalars(op, rng))
            if problem is None:
                continue
            problem = replace(problem, padding=base.padding, orders=base.orders, suites=frozenset({"hidden"}))
            if problem.name not in listed and find_size(op, problem) <= effort.max_hidden_flops:
                found[problem.name] = problem
                break
    return list(found.values())


@dataclass(frozen=True)
class Pool:
    """Steps of which the first ``count`` that a variant serves are run; those on the way there that it does not may be reported as such."""

    steps: tuple[Step, ...]
    count: int
    reports_unserved: bool = False


def make_pools(op: Op, effort: Effort) -> tuple[Pool, ...]:
    """Return the drawn problems, small and large."""
    places = tuple(d for d in op.distributions if d in PLACE_DISTRIBUTIONS)
    count = effort.num_drawn * _DRAWN_PER_SERVED
    small = draw_problems(op, effort.seed, count, effort.max_drawn_bytes, effort.max_drawn_flops) if count else []
    # A third of the distributions with every third problem.
    steps = tuple(Step(p, places[i % 3 :: 3], hidden=True) for i, p in enumerate(small))
    pools = [Pool(steps, effort.num_drawn, reports_unserved=True)]
    if count:
        corners = draw_corner_problems(op, effort.seed, effort.max_corner_bytes, effort.max_drawn_flops)
        pools += [Pool(tuple(Step(p, (), hidden=True) for p in group), 1) for group in corners]
    if effort.num_large:
        large = draw_large_problems(op, effort.seed)
        count_bench = max(effort.num_large - effort.num_large // 2 - 2, 1)
        pools += [_make_large_pool(group) for group in large.stretched]
        pools += [_make_large_pool(group) for group in large.beyond]
        pools += [_make_large_pool(group, whole=True) for group in large.many]
        pools += [_make_large_pool(large.bench, count_bench), *map(_make_large_pool, (large.distant, large.vast, large.odd))]
        last = (LAST_OF_ALL,) if "largest_last" in op.distributions else ()
        pools += [_make_large_pool(group, distributions=last) for group in large.searches]
    return tuple(pools)


def _make_large_pool(problems: Sequence[Problem], count: int = 1, *, distributions: tuple[str, ...] = (), whole: bool = False) -> Pool:
    return Pool(tuple(Step(p, distributions, hidden=True, large=True, whole=whole) for p in problems), count)


def make_plan(op: Op, effort: Effort, problem_names: Sequence[str] = ()) -> list[Step]:
    """Return the steps that every variant goes through: all that the op lists and some hidden ones, or the named problems alone.

    What is drawn can be named too, so that a finding can be repeated.
    """
    extra = tuple(d for d in op.distributions if d in VALUE_DISTRIBUTIONS and d != "normal")
    drawn = {s.problem.name: s for pool in make_pools(op, effort) for s in pool.steps} if problem_names else {}
    known = {p.name for p in op.problems}
    chosen = [drawn[name] for name in problem_names if name in drawn and name not in known]
    names = [name for name in problem_names if name in known or name not in drawn]
    if chosen and not names:
        return chosen
    listed = [p for p in op.select_problems("verify", names) if names or find_size(op, p) <= effort.max_listed_flops]
    steps = [Step(p, extra if find_size(op, p) <= effort.max_extra_flops else ()) for p in listed]
    if not problem_names:
        steps += [Step(p, (), hidden=True) for p in make_hidden_problems(op, effort)]
    return steps + chosen


def describe_plan(op: Op, steps: Sequence[Step], effort: Effort | None = None) -> str:
    """Say in one line what a verification runs."""
    hidden = sum(s.hidden for s in steps)
    varied = sum(bool(s.distributions) for s in steps)
    extra = [d for d in op.distributions if d in VALUE_DISTRIBUTIONS and d != "normal"]
    text = f"{len(steps) - hidden} problems on normal inputs"
    if varied and extra:
        text += f", {varied} of them also on {', '.join(extra)}"
    text += f"; {hidden} of unlisted sizes" if hidden else ""
    if effort is None:
        return text
    text += f"; each under {effort.schedules} schedules" if effort.schedules else ""
    if effort.num_drawn:
        text += f"; {effort.num_drawn} that are served of those drawn with strides and addresses of their own"
    text += f"; {effort.num_large} large ones in part" if effort.num_large else ""
    return text + (f"; one launched {effort.num_launches} times" if effort.num_launches else "")
