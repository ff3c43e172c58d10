"""Drawn problems on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from harness.compare.drawn.cliff_run import CliffsFound
from harness.compare.drawn.page import HEADINGS, find_titles, list_cells, say_time
from harness.compare.drawn.record import FILE, DrawnRun, group_rows
from harness.compare.drawn.run import PAGE, DrawnDone
from harness.spec import Op
from harness.terminal.figures import format_us
from harness.terminal.tables import print_tables

_NUM_WORST = 10


def print_drawn(done: DrawnDone) -> None:
    """Print what was timed and where its page is, or the decisions where nothing was."""
    if done.run is None:
        print_plan(done.list_rows(), done.target)
        return
    print_run(done.loaded.op, done.run)
    print(f"page: {done.folder}/{PAGE}, record: {done.folder}/{FILE}")


def print_cliffs(found: CliffsFound) -> None:
    """Print the cliffs, worst first, and how many pairs were looked at."""
    for c in found.cliffs:
        print(f"{c.jump:5.2f}  {c.step}: {c.low_us:.2f} to {c.high_us:.2f} us, {c.slower}: {c.cause}")
    counts = f"{len(found.cliffs)} cliffs; {found.num_looked} of {found.num_pairs} pairs were looked at, the likeliest first"
    print(f"{counts}. {found.where}\npage: {found.page}")


def print_run(op: Op, run: DrawnRun) -> None:
    """Print a run by groups, its worst problems, and where it was measured."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in HEADINGS:
        table.add_column(name, justify="left" if name in ("problems", "worst") else "right")
    results = group_rows(run.rows, find_titles(op))
    for result in results:
        table.add_row(*(escape(cell) for cell in list_cells(result)))
    print_tables([table])
    for ratio, row in results[-1].measured[:_NUM_WORST]:
        if ratio < 1.0 and row.mine is not None and row.peer is not None:
            times = f"{row.judged} {say_time(row.mine)} us, {row.peer.name} {say_time(row.peer)} us"
            print(f"{ratio:.3f}  {row.problem}: {times}")
    for text in (*run.left_out, *dict.fromkeys(f"{r.problem}: {r.reason}" for r in run.rows if r.reason)):
        print(text)
    seed = f"seed {run.seed} is NOT fresh, it was used before: {run.seed_note}" if run.seed_note else f"seed {run.seed} is fresh"
    print(
        "Ratio: time of the fastest library over that of what users get, cold medians of one run; in brackets: error over the op's bound."
    )
    print(f"{len(run.rows)} of {run.asked} problems; {seed}. {run.where}")


def print_plan(rows: Sequence[dict[str, Any]], target: str) -> None:
    """Print decisions and modelled times, where nothing can be timed."""
    print_tables([_make_plan_table(rows, target)])
    different = sum(bool(r["own"]) and r["own"] != r["variant"] for r in rows)
    print(f"{len(rows)} problems; the op itself chooses another variant on {different}.")
    print(f"Times are of the model of {target}: none was measured.")


def _make_plan_table(rows: Sequence[dict[str, Any]], target: str) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("problem", "frozen kernel", "by", f"model {target} us", "the op's own choice", f"model {target} us"):
        table.add_column(name, justify="right" if "model" in name else "left", overflow="fold")
    for r in rows:
        own = "the same" if r["own"] and r["own"] == r["variant"] else str(r["own"] or "none")
        times = [format_us(t) if isinstance(t, float) else "-" for t in (r["kernel_model_us"], r["own_model_us"])]
        table.add_row(escape(str(r["problem"])), escape(str(r["kernel"] or r["error"])), str(r["how"]), times[0], escape(own), times[1])
    return table
