"""What ``compare`` does when nothing is named: build and verify the op's choices, measure its goals, show and publish them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from json import dumps
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from device import UnavailableError
from harness.benchmark.session import Session
from harness.compare.goals import Row, choose_variants, list_problems, make_rows, measure_goals, record_goals, select_goals
from harness.compare.goals_page import HEADINGS, list_cells, make_page
from harness.discover import find_op, load_peers
from harness.errors import BuildError, ExitCode
from harness.terminal.console import open_progress, print_json
from harness.terminal.tables import print_tables
from harness.timing.rounds import Timed


def run_goals(
    op: str,
    names: list[str],
    rivals: list[str],
    publish: Path | None,
    device: str | None,
    target: str | None,
    jobs: int | None,
    json: bool,
    lead: Sequence[str] = (),
) -> ExitCode:
    """Measure an op's goals (all, or those named), print them, and write them to the folder ``publish``.

    The variants ``rivals`` (names as on the command line) are timed beside each choice where they serve its problem. ``lead`` are lines of
    Markdown with which the page begins.

    Raises UnavailableError on the emulated device, BuildError where a choice does not build or verify. The result is CHECK_FAILED where
    one could not be timed; a goal that is missed is a finding, no failure.
    """
    loaded = find_op(op)
    goals = select_goals(loaded.op, names)
    problems = list_problems(goals)
    choices = choose_variants(loaded.op, problems)
    others = loaded.op.select_variants(rivals) if rivals else ()
    variants = list({v.name: v for v in (*(c.variant for c in choices.values()), *others)}.values())
    left_out: list[str] = []
    found: dict[str, dict[str, Timed]] = {}
    command = f"compare {op}{''.join(f' --goal {n}' for n in names)}{''.join(f' --variant {n}' for n in rivals)}"
    with Session.start(loaded, command, device=device, target=target, jobs=jobs) as session:
        if session.device.is_emulated:
            raise UnavailableError(f"goals are times, which need a GPU; what is published is shown by: python -m harness report {op}")
        with open_progress(f"build {op}", len(variants), quiet=json) as progress:
            builds, binding = session.build(variants, lambda b: progress.advance(b.variant.name))
        with open_progress(f"verify {op}", len(variants), quiet=json) as progress:
            judged = session.judge(
                builds, binding, reuse=True, on_judged=lambda j: progress.advance(f"{j.variant.name}: {j.reason or 'passed'}")
            )
        if failed := [j for j in judged if not j.ok]:
            raise BuildError("only what is right is timed: " + "; ".join(f"{j.variant.name}: {j.reason}" for j in failed))
        by_name = {b.variant.name: b for b in builds}
        with open_progress(f"compare {op}", len(problems), quiet=json) as progress:
            names_of_others = [v.name for v in others]
            peers = load_peers(loaded.folder)
            measured = measure_goals(session, by_name, binding, goals, choices, names_of_others, peers, left_out.append)
            for problem, timed in measured:
                found[problem.name] = timed
                times = (f"{n} {t.cold.summary.median:.1f} us" for n, t in timed.items() if t.cold is not None)
                progress.advance(f"{problem.name}: {', '.join(times)}")
        rows = make_rows(goals, choices, found, by_name)
        record_goals(session, by_name, rows)
        commit = session.commit.describe()
        e = session.environment
        where = f"{e.device_name}, driver {e.driver_version}, {e.toolchain}, {commit}"
    payload = {
        "op": op,
        "command": command,
        "environment": asdict(e),
        "commit": commit,
        "left_out": left_out,
        "goals": [r.to_json() for r in rows],
        "timings": {p: {n: _describe_timing(t) for n, t in timed.items()} for p, timed in found.items()},
    }
    if publish is not None:
        (publish / "goals.md").write_text(make_page(op, rows, where, left_out, lead))
        _write_plot(op, rows, where, publish / "goals.svg")
        (publish / "goals.json").write_text(dumps(payload, indent=1) + "\n")
    if json:
        print_json(payload)
    else:
        _print(rows, where, left_out)
    return ExitCode.CHECK_FAILED if any(r.own_us is None for row in rows for r in row.ratios) else ExitCode.DONE


def _write_plot(op: str, rows: list[Row], where: str, path: Path) -> None:
    from harness.report.pictures.forest import plot_goals  # matplotlib takes a second to import
    from harness.report.pictures.svg import Drawing
    from harness.report.pictures.theme import WIDE

    path.write_text(Drawing(plot_goals(rows, f"{op}. {where}", WIDE)).to_svg())


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
    return {"status": timed.status, "reason": timed.reason, "checked": timed.checked} | figures


def _print(rows: list[Row], where: str, left_out: list[str]) -> None:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in HEADINGS:
        table.add_column(name, justify="right" if name in ("geomean", "aim") else "left")
    for row in rows:
        table.add_row(*(escape(cell) for cell in list_cells(row)))
    print_tables([table])
    for text in left_out:
        print(text)
    for text in dict.fromkeys(f"{r.problem}: {r.reason}" for row in rows for r in row.ratios if r.reason):
        print(text)
    for line in list_regrets(rows):
        print(line)
    print(f"Ratio: time of the fastest peer over the own, cold medians of one run. {where}")
