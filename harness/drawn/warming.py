"""Peers that compile, compiled ahead in many processes: each launches them once on its share of the problems and leaves the caches warm.

The process that times finds the code on disk; it tunes what is tuned by itself, alone on the GPU.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from device import open_device
from harness.bench import open_peers
from harness.discover import load_op, load_peers
from harness.spec import Launchable, Op, Problem
from harness.verify.runner import Case

_MAX_PROCESSES = 8


@dataclass
class _State:
    op: Op
    peers: dict[str, Launchable]


_state: _State | None = None


def _start(folder: Path, names: Sequence[str]) -> None:
    global _state
    device = open_device("cuda")
    wanted = [p for p in load_peers(folder) if p.name in names]
    _state = _State(load_op(folder), dict(open_peers(wanted, lambda _: None)))
    assert not device.is_emulated


def _warm(problem: dict[str, object], names: Sequence[str]) -> str:
    """Launch peers once on a problem; return what could not be compiled."""
    assert _state is not None
    device, op = open_device("cuda"), _state.op
    failed = []
    made = Problem(**problem)  # type: ignore[arg-type]
    with Case(device, op, made) as case:
        for name in names:
            if name not in _state.peers:
                continue
            try:
                if not _state.peers[name].supports(**case.arguments):
                    case.launch(_state.peers[name], device.create_stream())
                    device.synchronize()
            except (RuntimeError, TypeError, ValueError) as error:
                failed.append(f"{name} on {made.name}: {error}")
    return "; ".join(failed)


def warm_peers(folder: Path, wanted: Sequence[tuple[Problem, Sequence[str]]], jobs: int, say: Callable[[str], None]) -> None:
    """Compile the named peers for each problem; ``say`` is told of each problem that is done, and of what went wrong."""
    names = sorted({n for _, peers in wanted for n in peers})
    if not names:
        return
    count = max(1, min(_MAX_PROCESSES, jobs, len(wanted)))
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(count, context, _start, (folder, names)) as pool:
            jobs_by_problem = {pool.submit(_warm, _describe(p), peers): p for p, peers in wanted if peers}
            try:
                for done in as_completed(jobs_by_problem):
                    say(done.result() or f"compiled for {jobs_by_problem[done].name}")
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    except BrokenProcessPool as error:
        say(f"peers are compiled when they are timed: a process that compiled ahead died ({error})")


def _describe(problem: Problem) -> dict[str, object]:
    return {"sizes": dict(problem.sizes), "attributes": dict(problem.attributes), "padding": dict(problem.padding)}
