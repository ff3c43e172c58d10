"""What ``compare`` does by default: build and verify the op's choices, measure its goals, show and publish them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from device import UnavailableError
from harness.benchmark.ready import make_ready
from harness.benchmark.session import Session
from harness.compare.goals import Row, choose_variants, list_problems, make_rows, measure_goals, record_goals, select_goals
from harness.compare.goals_page import HEADINGS, list_cells, make_page, say_time
from harness.discover import LoadedOp, load_peers
from harness.records.facts import EnvironmentFacts
from harness.terminal.console import open_progress
from harness.terminal.tables import print_tables
from harness.timing.rounds import Timed

# Makes the picture of goals from rows and a heading, as SVG.
Draw = Callable[[list[Row], str], str]


@dataclass(frozen=True)
class GoalsRequest:
    """What was asked for: goals by name (all where there is none), and variants ``rivals`` that are timed beside each choice.

    ``lead`` are lines of Markdown with which the page begins.
    """

    loaded: LoadedOp
    goals: Sequence[str]
    rivals: Sequence[str]
    publish: Path | None
    device: str | None
    target: str | None
    jobs: int | None
    quiet: bool
    lead: Sequence[str] = ()

    @property
    def command(self) -> str:
        """The command, as the run is recorded."""
        named = [*(f" --goal {n}" for n in self.goals), *(f" --variant {n}" for n in self.rivals)]
        return f"compare {self.loaded.op.name}{''.join(named)}"


@dataclass(frozen=True)
class GoalsMeasured:
    """Goals as rows, all timings by problem and name, why a library was left out, and where it was measured."""

    op: str
    command: str
    rows: list[Row]
    timings: Mapping[str, Mapping[str, Timed]]
    left_out: list[str]
    environment: EnvironmentFacts
    commit: str

    @property
    def where(self) -> str:
        """Device, driver, toolchain and commit in words."""
        e = self.environment
        return f"{e.device_name}, driver {e.driver_version}, {e.toolchain}, {self.commit}"

    @property
    def is_failed(self) -> bool:
        """Whether a choice could not be timed; a goal that is missed is a finding, no failure."""
        return any(r.own_us is None for row in self.rows for r in row.ratios)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "op": self.op,
            "command": self.command,
            "environment": asdict(self.environment),
            "commit": self.commit,
            "left_out": self.left_out,
            "goals": [r.to_json() for r in self.rows],
            "timings": {p: {n: _describe_timing(t) for n, t in timed.items()} for p, timed in self.timings.items()},
        }


def run_goals(request: GoalsRequest, draw: Draw) -> GoalsMeasured:
    """Measure an op's goals, and write them to the folder ``publish``; ``draw`` makes the picture.

    Raises UnavailableError on the emulated device, BuildError where a choice does not build or verify.
    """
    measured = _measure(request)
    if request.publish is not None:
        page = make_page(measured.op, measured.rows, measured.where, measured.left_out, request.lead)
        (request.publish / "goals.md").write_text(page)
        (request.publish / "goals.svg").write_text(draw(measured.rows, f"{measured.op}. {measured.where}"))
        (request.publish / "goals.json").write_text(dumps(measured.to_json(), indent=1) + "\n")
    return measured


def _measure(request: GoalsRequest) -> GoalsMeasured:
    op, loaded = request.loaded.op.name, request.loaded
    goals = select_goals(loaded.op, request.goals)
    problems = list_problems(goals)
    choices = choose_variants(loaded.op, problems)
    others = loaded.op.select_variants(request.rivals) if request.rivals else ()
    variants = list({v.name: v for v in (*(c.variant for c in choices.values()), *others)}.values())
    left_out: list[str] = []
    found: dict[str, dict[str, Timed]] = {}
    with Session.start(loaded, request.command, device=request.device, target=request.target, jobs=request.jobs) as session:
        if session.device.is_emulated:
            raise UnavailableError(f"goals are times, which need a GPU; to see published ones: python -m harness report {op}")
        ready = make_ready(session, variants, quiet=request.quiet)
        ready.require_right()
        by_name = {b.variant.name: b for b in ready.builds}
        with open_progress(f"compare {op}", len(problems), quiet=request.quiet) as progress:
            names_of_others = [v.name for v in others]
            peers = load_peers(loaded.folder)
            measured = measure_goals(session, by_name, ready.binding, goals, choices, names_of_others, peers, left_out.append)
            for problem, timed in measured:
                found[problem.name] = timed
                times = (f"{n} {say_time(t.cold.summary.median, t.error)}" for n, t in timed.items() if t.cold is not None)
                progress.advance(f"{problem.name}, us (error): {', '.join(times)}")
        rows = make_rows(goals, choices, found, by_name)
        record_goals(session, by_name, rows)
        return GoalsMeasured(op, request.command, rows, found, left_out, session.environment, session.commit.describe())


def list_regrets(rows: list[Row]) -> list[str]:
    """Say how the choices compare with the fastest of the op's variants in the run; nothing where no others were timed."""
    known = {r.problem: r for row in rows for r in row.ratios if r.regret is not None}
    if not known:
        return []
    late = sorted((r for r in known.values() if r.regret), key=lambda r: -(r.regret or 0.0))
    mean = sum(r.regret or 0.0 for r in known.values()) / len(known)
    lines = [f"regret of the choices on {len(known)} problems: {100 * mean:.2f} % on average"]
    return lines + [f"  {r.problem}: {r.variant} is {100 * (r.regret or 0.0):.1f} % behind {r.best}" for r in late[:10]]


def _describe_timing(timed: Timed) -> dict[str, object]:
    figures = {} if timed.cold is None else timed.cold.to_figures()
    return {"status": timed.status, "reason": timed.reason, "checked": timed.checked, "error": timed.error} | figures


def print_goals(measured: GoalsMeasured) -> None:
    """Print the goals, the libraries that were left out, and where they were measured."""
    rows = measured.rows
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in HEADINGS:
        table.add_column(name, justify="right" if name in ("geomean", "aim") else "left")
    for row in rows:
        table.add_row(*(escape(cell) for cell in list_cells(row)))
    print_tables([table])
    for text in measured.left_out:
        print(text)
    for text in dict.fromkeys(f"{r.problem}: {r.reason}" for row in rows for r in row.ratios if r.reason):
        print(text)
    for line in list_regrets(rows):
        print(line)
    print(f"Ratio: time of the fastest peer over the own, cold medians of one run. {measured.where}")
