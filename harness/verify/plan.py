"""Which problems and inputs a verification runs: the op's own problems, sizes that the op does not list, and the distributions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.spec import Facts, Op, Problem, settle


@dataclass(frozen=True)
class Effort:
    """How much is verified.

    Every problem is verified on normal inputs with the whole protocol. The other distributions run once each on problems of at most
    ``max_extra_flops`` or bytes moved. ``num_hidden`` problems of sizes that the op does not list are added, each of at most
    ``max_hidden_flops``, so that a kernel which is right for the listed sizes alone is found. On an emulated device each problem
    runs under ``schedules`` orders of blocks and warps, whose results must have the same bits.
    """

    max_extra_flops: float = 4e6
    num_hidden: int = 4
    max_hidden_flops: float = 32e6
    schedules: int = 0


@dataclass(frozen=True)
class Step:
    """One problem with the distributions to run beside ``normal``."""

    problem: Problem
    distributions: tuple[str, ...]
    hidden: bool = False


def find_size(op: Op, problem: Problem) -> float:
    """Return a figure of the work in a problem: its flops or its bytes, whichever is larger."""
    cost = op.cost(problem)
    return max(cost.flops, cost.bytes_moved)


def make_hidden_problems(op: Op, effort: Effort) -> list[Problem]:
    """Derive problems with other sizes from the listed ones: each size becomes a random one from 1 to twice its value.

    The choice is seeded by the op's name, thus the same on every machine; attributes and paddings are those of the listed problem, and
    sizes agree in what the op ties together.
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
            sizes = dict(settle(op.ties, Facts(sizes, op.attribute_values(base))).sizes)
            problem = Problem(sizes, base.attributes, base.padding, frozenset({"hidden"}))
            if problem.name not in listed and find_size(op, problem) <= effort.max_hidden_flops:
                found[problem.name] = problem
                break
    return list(found.values())


def make_plan(op: Op, effort: Effort, problem_names: Sequence[str] = ()) -> list[Step]:
    """Return the steps of a verification: all of the op, or the named problems alone."""
    extra = tuple(d for d in op.distributions if d != "normal")
    listed = op.select_problems("verify", problem_names)
    steps = [Step(p, extra if find_size(op, p) <= effort.max_extra_flops else ()) for p in listed]
    if not problem_names:
        steps += [Step(p, (), hidden=True) for p in make_hidden_problems(op, effort)]
    return steps


def describe_plan(op: Op, steps: Sequence[Step], effort: Effort | None = None) -> str:
    """Say in one line what a verification runs."""
    hidden = sum(s.hidden for s in steps)
    varied = sum(bool(s.distributions) for s in steps)
    extra = [d for d in op.distributions if d != "normal"]
    text = f"{len(steps) - hidden} problems on normal inputs"
    if varied and extra:
        text += f", {varied} of them also on {', '.join(extra)}"
    text += f"; {hidden} of unlisted sizes" if hidden else ""
    return text + (f"; each under {effort.schedules} schedules" if effort and effort.schedules else "")
