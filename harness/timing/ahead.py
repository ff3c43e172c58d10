"""Inputs and float64 references of the next problems, computed while the GPU works on others."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from harness.spec import Op, Problem
from harness.timing.rounds import TIMING_DISTRIBUTION
from harness.verify.inputs import make_inputs
from harness.verify.reference import Expected, compute_expected

# Beyond this an output is judged on a sample, where the op says how: comparing all of it for each contender takes longer than timing it.
_WHOLE_BYTES = 2.0**25
_AHEAD, _THREADS = 8, 6
# Of the host's memory, for the inputs of problems that wait, as far as more than one of them does.
_MEMORY_SHARE = 1 / 16


def expect(op: Op, problem: Problem) -> Expected:
    """Return the inputs of a problem as it is timed, and what is expected of its outputs: of large ones a sample."""
    return compute_expected(op, problem, make_inputs(op, problem, TIMING_DISTRIBUTION), whole_bytes=_WHOLE_BYTES, is_thinned=True)


class ExpectedAhead:
    """What is expected on problems that are asked for in their order, of which some may be left out: a context manager.

    That of the next few is computed meanwhile, as far as their inputs fit the host's memory, in ``num_threads``, by ``compute``:
    :func:`expect` where that is None.
    """

    def __init__(
        self, op: Op, problems: Iterable[Problem], compute: Callable[[Op, Problem], Expected] | None = None, num_threads: int = _THREADS
    ) -> None:
        self._op, self._rest, self._compute = op, deque(problems), compute or expect
        self._waiting: deque[tuple[Problem, Future[Expected], float]] = deque()
        self._memory = _MEMORY_SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self._pool = ThreadPoolExecutor(num_threads)

    def __enter__(self) -> ExpectedAhead:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def find(self, problem: Problem) -> Expected:
        """Wait for what is expected on a problem; raises what the op's own callables raise.

        Those in front of it are dropped; one that is behind, or unknown, is computed now.
        """
        if problem.name not in {p.name for p in (*(p for p, _, _ in self._waiting), *self._rest)}:
            return self._compute(self._op, problem)
        while True:
            self._start()
            first, future, _ = self._waiting.popleft()
            if first.name == problem.name:
                return future.result()
            future.cancel()

    def _start(self) -> None:
        while self._rest and len(self._waiting) < _AHEAD:
            size = self._op.cost(self._rest[0]).bytes_read
            if self._waiting and sum(s for _, _, s in self._waiting) + size > self._memory:
                return
            problem = self._rest.popleft()
            self._waiting.append((problem, self._pool.submit(self._compute, self._op, problem), size))


def expect_ahead(op: Op, problems: Iterable[Problem]) -> Iterator[Expected]:
    """Yield what is expected on each problem."""
    problems = list(problems)
    with ExpectedAhead(op, problems) as ahead:
        for problem in problems:
            yield ahead.find(problem)
