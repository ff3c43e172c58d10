"""Peers that compile are compiled beforehand in many processes: each launches its share of the problems once and leaves warm caches.

The process that times finds the code on disk; it tunes what is tuned by itself, alone on the GPU.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from device import open_device
from harness.benchmark.run import open_peers
from harness.compare.drawn.problems import describe_problem, read_problem
from harness.discover import load_op, load_peers
from harness.spec import Launchable, Op, Problem
from harness.verify.allocations import Layout
from harness.verify.case import Case

_MAX_PROCESSES = 8


@dataclass
class _State:
    op: Op
    peers: dict[str, Launchable]


_state: _State | None = None


def _start(folder: Path, names: Sequence[str]) -> None:
    global _state
    # Each of these processes would start as many of its own as there are cores.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    open_device("cuda")
    wanted = [p for p in load_peers(folder) if p.name in names]
    _state = _State(load_op(folder), dict(open_peers(wanted, lambda _: None)))


def _compile(row: dict[str, Any], names: Sequence[str]) -> str:
    """Launch peers once on a problem; return what could not be compiled."""
    assert _state is not None
    device, op = open_device("cuda"), _state.op
    failed = []
    problem = read_problem(row)
    with Case(device, op, problem, Layout.EXACT) as case:
        for name in names:
            if name not in _state.peers:
                continue
            try:
                if not _state.peers[name].supports(**case.arguments):
                    case.prepare(_state.peers[name])
                    case.launch(_state.peers[name], device.create_stream())
                    device.synchronize()
            except (RuntimeError, TypeError, ValueError) as error:
                failed.append(f"{name} on {problem.name}: {error}")
    return "; ".join(failed)


def _find_fault(done: Future[str]) -> str:
    error = done.exception()
    return done.result() if error is None else f"a peer could not be compiled ahead: {type(error).__name__}: {error}"


def precompile_peers(folder: Path, wanted: Sequence[tuple[Problem, Sequence[str]]], jobs: int) -> list[str]:
    """Compile the named peers for each problem, and return what went wrong: those are compiled when they are timed, or fail there."""
    names = sorted({n for _, peers in wanted for n in peers})
    if not names:
        return []
    count = max(1, min(_MAX_PROCESSES, jobs, len(wanted)))
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(count, context, _start, (folder, names)) as pool:
            futures = [pool.submit(_compile, dict(describe_problem(p)), peers) for p, peers in wanted if peers]
            try:
                return list(dict.fromkeys(filter(None, map(_find_fault, as_completed(futures)))))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    except BrokenProcessPool as error:
        return [f"peers were compiled when they were timed: a process that compiled ahead died ({error})"]
