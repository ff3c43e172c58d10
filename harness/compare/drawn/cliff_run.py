"""What ``compare --cliffs`` does: neighbours of drawn problems, the likeliest jumps first, timed on a GPU or modelled without one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.files import write_atomically
from contract.kernels import read_kernel
from contract.layout import find_frozen_dir
from device.interface import UnavailableError
from device.settings import find_project_root
from harness.benchmark.session import Session
from harness.compare.drawn.cliffs import Cliff, Pair, find_work_ratio, guess_jump, list_pairs, make_cliffs
from harness.compare.drawn.contenders import Contenders, build_contenders
from harness.compare.drawn.frozen_choice import FrozenChoice, choose_frozen
from harness.compare.drawn.page import make_cliffs_page
from harness.compare.drawn.problems import draw_problems
from harness.compare.drawn.run import Request
from harness.compare.drawn.timing import POLICY
from harness.compare.drawn.without_gpu import model_us, open_modelled
from harness.compare.goals import time_all
from harness.model.time_model import has_machine
from harness.spec import Problem
from harness.terminal.console import claim_output, open_progress
from harness.timing.ahead import expect_ahead
from harness.timing.timer import Timer

PAGE = "cliffs.md"
# Pairs that are looked at, of some dozen times as many: predictions say which are the likeliest.
_NUM_PAIRS = 48

OnTime = Callable[[Problem], None]


@dataclass(frozen=True)
class CliffsFound:
    """Neighbours whose times jump, worst first; how many pairs were looked at, and where; and the page that says so."""

    op: str
    cliffs: list[Cliff]
    where: str
    num_pairs: int
    num_looked: int
    page: Path

    @property
    def is_failed(self) -> bool:
        """A cliff is a finding, no failure."""
        return False

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        cliffs = [c.to_json() for c in self.cliffs]
        return {"op": self.op, "where": self.where, "pairs": self.num_pairs, "looked_at": self.num_looked, "cliffs": cliffs}


def run_cliffs(request: Request) -> CliffsFound:
    """Find cliffs of the frozen decision around drawn problems, worst first, and write their page.

    Raises UnavailableError where the op is not frozen, or there is neither a GPU nor a model of the target.
    """
    loaded = request.loaded
    op, deadline = loaded.op, time.monotonic() + request.seconds
    folder = request.publish or find_project_root() / ".aicf" / "drawn" / loaded.op.name
    claim_output(folder, "--publish", is_folder=True)
    pairs = list_pairs(op, [d.problem for d in draw_problems(op, request.count, request.seed, request.groups)])
    with Session.start(loaded, request.command, device=request.device, target=request.target, jobs=request.jobs) as session:
        if session.device.is_emulated and not has_machine(session.target.name):
            raise UnavailableError(f"cliffs are found in times: they need a GPU, or a time model, and {session.target.name} has none")
        problems = list({p.name: p for pair in pairs for p in (pair.low, pair.high)}.values())
        found = choose_frozen(op, problems, session.target.real_arch)
        choices = {p.name: c for p, c in zip(problems, found, strict=True)}
        if not any(c.kernel for c in found):
            raise UnavailableError(f"cliffs are of the frozen decision: {found[0].error}")
        priors = _read_priors(op.name, found)
        guesses = {id(p): guess_jump(find_work_ratio(op, p), (choices[p.low.name], choices[p.high.name]), priors, p) for p in pairs}
        looked = sorted(pairs, key=lambda p: -guesses[id(p)])[:_NUM_PAIRS]
        times = _find_times(session, request, looked, choices, deadline)
        cliffs = make_cliffs(op, looked, times, choices, priors)
        where = _describe_where(session)
    num_looked = sum(p.low.name in times and p.high.name in times for p in looked)
    write_atomically(folder / PAGE, make_cliffs_page(op.name, cliffs, where, len(pairs), num_looked))
    return CliffsFound(op.name, cliffs, where, len(pairs), num_looked, folder / PAGE)


def _describe_where(session: Session) -> str:
    if session.device.is_emulated:
        return f"Times of the model of {session.target.name}, none was measured; {session.commit.describe()}"
    e = session.environment
    return f"Cold medians on {e.device_name}, driver {e.driver_version}, {e.toolchain}, {session.commit.describe()}"


def _read_priors(op: str, choices: Sequence[FrozenChoice]) -> dict[str, dict[str, object]]:
    folder = find_frozen_dir() / op
    return {k: read_kernel(folder, k).manifest["prior"] for k in sorted({c.kernel for c in choices if c.kernel})}


def _find_times(
    session: Session, request: Request, pairs: Sequence[Pair], choices: dict[str, FrozenChoice], deadline: float
) -> dict[str, float]:
    """Return microseconds by problem name, of as many of the pairs' problems as the deadline allows."""
    problems = list({p.name: p for pair in pairs for p in (pair.low, pair.high) if choices[p.name].kernel}.values())
    kernels = sorted({choices[p.name].kernel for p in problems})
    with open_progress(f"build {request.loaded.op.name}", len(kernels), quiet=request.quiet) as progress:
        contenders = build_contenders(session, kernels, (), progress.advance)
    times: dict[str, float] = {}
    find = _model if session.device.is_emulated else _measure
    with open_progress(f"cliffs of {request.loaded.op.name}", len(problems), quiet=request.quiet) as progress:
        for problem, us in find(session, contenders, problems, choices):
            if us is not None:
                times[problem.name] = us
            progress.advance(f"{problem.name}: {'-' if us is None else f'{us:.2f} us'}")
            if time.monotonic() > deadline:
                break
    return times


def _model(
    session: Session, contenders: Contenders, problems: Sequence[Problem], choices: dict[str, FrozenChoice]
) -> Iterator[tuple[Problem, float | None]]:
    known = {k: open_modelled(session, contenders.builds[k], launchable) for k, launchable in contenders.sealed.items()}
    for problem in problems:
        yield problem, model_us(session.device, session.loaded.op, problem, known[choices[problem.name].kernel], session.target)


def _measure(
    session: Session, contenders: Contenders, problems: Sequence[Problem], choices: dict[str, FrozenChoice]
) -> Iterator[tuple[Problem, float | None]]:
    timer = Timer(session.device, POLICY)
    try:
        for problem, expected in zip(problems, expect_ahead(session.loaded.op, problems), strict=True):
            kernel = choices[problem.name].kernel
            timed = time_all(session, timer, problem, [(kernel, contenders.sealed[kernel])], expected)[kernel]
            yield problem, timed.cold.summary.median if timed.status == "passed" and timed.cold is not None else None
    finally:
        timer.close()
