"""How many loop iterations a kernel may take on a problem before the emulated device reports an endless loop.

A warp that keeps everything to itself (no store, no atomic, no barrier) for as many turns as the whole problem has operations and bytes,
four times over, does not get anywhere: one thread that did all of the problem's work before its first store would need fewer. With the
smallest problems' few operations the limit is a floor that a loop reaches within a second, and it never exceeds what takes about a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from device.interface import Device
from harness.spec import Op, Problem

_TURNS_PER_WORK = 4
_LEAST_TURNS = 1 << 20
_MOST_TURNS = 1 << 26


def find_loop_limit(op: Op, problem: Problem) -> int:
    """Return the emulated device's ``loop_limit`` for a problem, in turns of a warp's loops."""
    cost = op.cost(problem)
    return int(min(max(_LEAST_TURNS, _TURNS_PER_WORK * (cost.flops + cost.bytes_moved)), _MOST_TURNS))


@contextmanager
def limit_loops(device: Device, op: Op, problem: Problem) -> Iterator[None]:
    """Have endless loops ended, and reported with their line, for the block; a GPU has no such limit."""
    if device.observer is None:
        yield
        return
    with device.observer.use_options({"loop_limit": str(find_loop_limit(op, problem))}):
        yield
