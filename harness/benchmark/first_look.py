"""The variants of a large op that ``bench`` takes by default without a GPU; compiling and verifying all would take minutes on two cores.

What is compared there is modelled, so that of variants that differ in tile sizes little is learned; kernels differ by their ideas.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.spec import Op, Problem, Variant

# An op with no more variants than this is benched whole.
_MAX_WHOLE = 32


def select_first_look(op: Op, problems: Sequence[Problem]) -> tuple[Variant, ...]:
    """Return the variants of a first look at an op, in their listed order.

    They are, for each problem, the first listed variant of each kernel that serves it by its domain, and the op's own choice. An op with
    few variants has all of them, and so has one none of whose variants serves a problem.
    """
    if len(op.variants) <= _MAX_WHOLE:
        return op.variants
    chosen: set[Variant] = set()
    for problem in problems:
        serving = [v for v in op.variants if op.meets_domain(v, problem)]
        firsts = {v.kernel: v for v in reversed(serving)}
        chosen.update(firsts.values())
        if op.choose is not None:
            chosen.add(op.choose(problem).variant)
    return tuple(v for v in op.variants if v in chosen) or op.variants
