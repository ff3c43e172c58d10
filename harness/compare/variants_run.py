"""What ``compare --base`` and ``compare --against`` do: build and verify both sides, and hold their contests problem by problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from device import UnavailableError
from harness.benchmark.ready import make_ready
from harness.benchmark.session import Session
from harness.compare.variants import Compared, Side, compare_sides, open_other_sides
from harness.discover import LoadedOp
from harness.spec import Op, Problem, SpecError, Variant
from harness.terminal.console import open_progress
from harness.timing.batches import Mode
from harness.timing.timer import Timer
from harness.timing.verdicts import Criteria


@dataclass(frozen=True)
class VariantsRequest:
    """What was asked for: the incumbent is the variant ``base``, or each candidate as it was at the revision ``against``."""

    loaded: LoadedOp
    base: str | None
    against: str | None
    candidates: Sequence[str]
    problems: Sequence[str]
    mode: str
    criteria: Criteria
    device: str | None
    target: str | None
    jobs: int | None
    quiet: bool

    @property
    def command(self) -> str:
        """The command, as the run is recorded."""
        return f"compare {self.loaded.op.name} {f'--base {self.base}' if self.base else f'--against {self.against}'} --mode {self.mode}"


def run_variants(request: VariantsRequest) -> tuple[list[Compared], str]:
    """Compare variants; return a row per candidate and problem, and where it was measured.

    Raises SpecError for names that do not fit, UnavailableError on the emulated device, BuildError where one is not right.
    """
    loaded = request.loaded
    wanted = _select_sides(loaded.op, request)
    problems = loaded.op.select_problems("bench", request.problems)
    with Session.start(loaded, request.command, device=request.device, target=request.target, jobs=request.jobs) as session:
        if session.device.is_emulated:
            raise UnavailableError("a comparison measures times, which need a GPU; two records are compared without one: --record ID twice")
        ready = make_ready(session, wanted, quiet=request.quiet)
        ready.require_right()
        sides = [Side(b.variant.name, loaded.op, b, ready.binding) for b in ready.builds]
        pairs = [(sides[0], sides[1:])] if request.base else open_other_sides(session, request.against or "", sides)
        rows = _hold_contests(session, pairs, problems, request)
        return rows, f"{session.device.properties.name}; {session.describe_run()}"


def _select_sides(op: Op, request: VariantsRequest) -> list[Variant]:
    """Return the incumbent, where it is a variant, and the candidates."""
    incumbent = op.select_variants([request.base])[0] if request.base else None
    if incumbent is not None and incumbent.name != request.base:
        raise SpecError(f"--base {request.base}: give one variant by its exact name; `python -m harness list {op.name}` shows them")
    candidates = [v for v in op.select_variants(request.candidates) if v != incumbent]
    if not candidates:
        raise SpecError("there is no candidate: name one with --variant")
    return [*([incumbent] if incumbent else []), *candidates]


def _hold_contests(
    session: Session, pairs: Sequence[tuple[Side, Sequence[Side]]], problems: Sequence[Problem], request: VariantsRequest
) -> list[Compared]:
    rows: list[Compared] = []
    timer = Timer(session.device)
    total = sum(len(candidates) for _, candidates in pairs) * len(problems)
    try:
        with open_progress(f"compare {request.loaded.op.name}", total, quiet=request.quiet) as progress:
            for incumbent, candidates in pairs:
                for row in compare_sides(session, timer, incumbent, candidates, problems, Mode(request.mode), request.criteria):
                    rows.append(row)
                    progress.advance(f"{row.problem} {row.candidate}: {row.outcome.verdict if row.outcome else row.reason}")
    finally:
        timer.close()
    return rows
