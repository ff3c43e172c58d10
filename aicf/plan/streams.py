"""Which stream each step runs on, by the steps' times: side by side where that is expected to pay, and kept where it is measured to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from aicf.plan.data import ARENA, Plan, Slot
from aicf.plan.verifier import verify

# What it costs, in microseconds, that a step waits for one of another stream: about a dependency between nodes of a graph. A guess is
# enough here, since the whole plan is measured before it is taken.
_WAIT_US = 1.0
# Of the time on one stream; a plan that is expected to save less is not worth measuring.
_WORTH = 0.97


def choose_streams(
    plan: Plan, times_us: Sequence[float], make: Callable[[Mapping[int, int]], Plan], time_us: Callable[[Plan], float], num_streams: int = 2
) -> tuple[Plan, str]:
    """Return the faster of a plan and of the same steps on several streams, and what decided.

    ``times_us`` are the steps' own times; ``make`` plans for streams by node id, and ``time_us`` measures a whole run.
    """
    streams = place_steps(plan, times_us, num_streams)
    expected, serial = predict_us(plan, times_us, streams), sum(times_us)
    if expected >= _WORTH * serial:
        return plan, f"one stream: {serial:.1f} us; side by side {expected:.1f} us are expected at best"
    other = make({step.node: stream for step, stream in zip(plan.steps, streams, strict=True)})
    verify(other)
    one, several = time_us(plan), time_us(other)
    told = f"{other.num_streams} streams take {several:.1f} us, one takes {one:.1f} us"
    return (other, told) if several < one else (plan, f"{told}: one stream is kept")


def place_steps(plan: Plan, times_us: Sequence[float], num_streams: int) -> list[int]:
    """Return a stream for each step: in the plan's order, the one on which it can begin first."""
    depends = find_dependencies(plan)
    free = [0.0] * num_streams
    ends: list[float] = []
    streams: list[int] = []
    for i, us in enumerate(times_us):
        begins = [_find_begin(free[s], s, depends[i], ends, streams) for s in range(num_streams)]
        latest = max(depends[i], key=lambda j: ends[j], default=None)
        home = 0 if latest is None else streams[latest]
        chosen = min(range(num_streams), key=lambda s: (begins[s], s != home, s))
        streams.append(chosen)
        ends.append(begins[chosen] + us)
        free[chosen] = ends[-1]
    return streams


def predict_us(plan: Plan, times_us: Sequence[float], streams: Sequence[int]) -> float:
    """Return when the last step ends, where steps of different streams do not slow each other down."""
    depends = find_dependencies(plan)
    free: dict[int, float] = {}
    ends: list[float] = []
    for i, (us, stream) in enumerate(zip(times_us, streams, strict=True)):
        ends.append(_find_begin(free.get(stream, 0.0), stream, depends[i], ends, streams) + us)
        free[stream] = ends[-1]
    return max(ends, default=0.0)


def _find_begin(free: float, stream: int, depends: Sequence[int], ends: Sequence[float], streams: Sequence[int]) -> float:
    return max([free, *(ends[j] + (_WAIT_US if streams[j] != stream else 0.0) for j in depends)])


def find_dependencies(plan: Plan) -> list[list[int]]:
    """Return for each step those whose results it reads, or that must be done with what it overwrites.

    Bytes that buffers of the arena share by turns are no dependency: they are placed anew for other streams.
    """
    found: list[list[int]] = []
    for i, step in enumerate(plan.steps):
        mine: set[int] = set()
        for j in range(i):
            other = plan.steps[j]
            reads_after = any(_is_same(a, b) for a in step.reads for b in other.writes)
            writes_after = any(_is_same(a, b) for a in step.writes for b in (*other.reads, *other.writes))
            if reads_after or writes_after:
                mine.add(j)
        found.append(sorted(mine))
    return found


def _is_same(a: Slot, b: Slot) -> bool:
    if a.region != b.region:
        return False
    return a.buffer == b.buffer if a.region == ARENA else a.offset < b.end and b.offset < a.end
