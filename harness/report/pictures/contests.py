"""What the records say about contests and goals: one row per candidate against its incumbent, and an op's choices against its peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd

from harness.compare.goals import Ratio, Row
from harness.compare.goals_page import list_cells
from harness.report.pictures.labels import shorten_variants
from harness.spec import Goal
from harness.timing.verdicts import Criteria, Effect, format_p_value, judge_effect

# A contest whose control differed, and a candidate whose output or time was wrong, have no verdict.
VOID, FAILED = "VOID", "FAILED"
_EFFECT = ("change", "low", "high")


def select_comparisons(frame: pd.DataFrame, device: str) -> pd.DataFrame:
    """Return each candidate's newest contest against each incumbent on each problem, in the order of problems, contests and changes.

    Columns: ``problem``, ``mode``, ``contest`` (a name for what was timed in the same rounds), ``started_at``, ``device``,
    ``device_kind``, ``commit``, ``dirty``, ``incumbent``,
    ``candidate``, ``variant``, ``verdict`` (of :class:`harness.timing.verdicts.Verdict`, or :data:`VOID` or :data:`FAILED`), ``why``;
    ``change``, ``low`` and ``high`` (the candidate's time over the incumbent's, less one), ``p_value``, ``confidence`` (of the
    interval), ``num_rounds``, ``margin``;
    ``cycles`` and ``cycles_change`` (the same in SM cycles: verdict, "" where the clock is not known); ``control_change``,
    ``control_low``, ``control_high`` (the incumbent against its copy), ``control``; ``incumbent_us``, ``candidate_us``.
    """
    contests = frame[(frame.kind == "compare") & (frame.device == device)]
    candidates = contests[np.array([f.get("role") == "candidate" for f in contests.figures], bool)]
    rows = pd.DataFrame([_read_candidate(r) for r in candidates.sort_values(["started_at", "record"]).itertuples()])
    if rows.empty:
        return rows
    newest = rows.drop_duplicates(["problem", "mode", "incumbent", "candidate"], keep="last")
    order = {name: i for i, name in enumerate(dict.fromkeys(newest.problem))}
    return newest.assign(_problem=newest.problem.map(order)).sort_values(["_problem", "mode", "contest", "change"]).drop(columns="_problem")


def _read_candidate(r: Any) -> dict[str, Any]:
    f: Mapping[str, Any] = r.figures
    margin = float(f.get("margin", Criteria.margin))
    effect, control = Effect(**f["effect"]), Effect(**f["control"])
    cycles = Effect(**f["cycles"]) if f["cycles"] else None
    return {
        "problem": r.problem,
        "mode": f["mode"],
        "contest": f"{r.run_uid} {f['incumbent']} {control.change:.9g} {control.low:.9g}",
        **{name: getattr(r, name) for name in ("started_at", "device", "device_kind", "commit", "dirty")},
        "incumbent": f["incumbent"],
        "candidate": str(f.get("name", r.variant)),
        "variant": r.variant,
        "verdict": FAILED if r.status != "passed" else VOID if f["is_void"] else f["verdict"],
        "why": r.reason or f["note"],
        **{name: getattr(effect, name) for name in (*_EFFECT, "p_value", "confidence", "num_rounds")},
        "margin": margin,
        "cycles": "" if cycles is None else judge_effect(cycles, margin).value,
        "cycles_change": np.nan if cycles is None else cycles.change,
        **{f"control_{name}": getattr(control, name) for name in _EFFECT},
        "control": judge_effect(control, margin).value,
        "incumbent_us": float(f["incumbent_median_us"]),
        "candidate_us": float(f["median_us"]),
    }


def name_contenders(comparisons: pd.DataFrame) -> dict[str, str]:
    """Return a short name for every incumbent and candidate; what follows an ``@`` is the revision that it was built from."""
    names = list(dict.fromkeys([*comparisons.incumbent, *comparisons.candidate]))
    short = shorten_variants([n.partition("@")[0] for n in names])
    return {n: short[n.partition("@")[0]] + (f" @ {n.partition('@')[2][:7]}" if "@" in n else "") for n in names}


def count_verdicts(comparisons: pd.DataFrame) -> str:
    """Say how many comparisons came out how."""
    counts = comparisons.verdict.value_counts()
    return ", ".join(f"{counts[v]} {v}" for v in ("FASTER", "SLOWER", "SAME", "AMBIGUOUS", VOID, FAILED) if v in counts)


def make_comparison_rows(comparisons: pd.DataFrame, labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return each comparison as text."""
    names = name_contenders(comparisons)
    return [
        {
            "problem": labels[r.problem] + ("" if r.mode == "cold" else f", {r.mode}"),
            "title": r.problem,
            "candidate": names[r.candidate],
            "candidate_full": r.candidate,
            "incumbent": names[r.incumbent],
            "incumbent_full": r.incumbent,
            "verdict": r.verdict,
            "why": r.why,
            "change": "" if r.verdict == FAILED else format_change(r.change),
            "interval": "" if r.verdict == FAILED else _format_interval(r.low, r.high),
            "p_value": "" if r.verdict == FAILED else format_p_value(r.p_value),
            "cycles": "" if r.verdict == FAILED else f"{r.cycles} {format_change(r.cycles_change)}" if r.cycles else "clock not known",
            "control": f"{format_change(r.control_change)} ({_format_interval(r.control_low, r.control_high)})",
            "control_fails": r.control not in ("SAME", "AMBIGUOUS"),
            "rounds": r.num_rounds,
            "times": f"{_format_us(r.incumbent_us)} → {_format_us(r.candidate_us)}",
        }
        for r in comparisons.itertuples()
    ]


def format_change(change: float) -> str:
    """Return a relative change in time as percent, with a sign."""
    return f"{100 * change:+.2f} %".replace("-", "\N{MINUS SIGN}")


def _format_interval(low: float, high: float) -> str:
    return f"{format_change(low).removesuffix(' %')} to {format_change(high)}"


def _format_us(time_us: float) -> str:
    return f"{time_us:#.4g}".rstrip(".")


def select_goals(frame: pd.DataFrame, device: str) -> pd.DataFrame:
    """Return the rows of an op's goals as they were last measured on a device, with the goal's name in the column ``goal``."""
    rows = frame[(frame.kind == "goal") & (frame.device == device)]
    named = rows.assign(goal=[f["goal"] for f in rows.figures]).sort_values(["started_at", "record"], kind="stable")
    return named[named.run_uid == named.groupby("goal", sort=False).run_uid.transform("last")] if len(named) else named


def read_goals(frame: pd.DataFrame, device: str) -> list[Row]:
    """Return an op's goals as they were last measured on a device, each with all of its problems."""
    found = []
    for _, group in select_goals(frame, device).groupby("goal", sort=False):
        f = group.figures.iloc[-1]
        goal = Goal(f["goal"], f["title"], (), tuple(f["peers"]), aim=f["aim"], least=f["least"], worst=f["worst"])
        found.append(Row(goal, tuple(_read_ratio(f) for f in group.figures)))
    return found


def _read_ratio(figures: Mapping[str, Any]) -> Ratio:
    return Ratio(**{f.name: figures[f.name] for f in fields(Ratio) if f.name in figures})


def make_goal_rows(goals: Sequence[Row], labels: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Return each goal's cells under :data:`harness.compare.goals_page.HEADINGS`, and the tone of its verdict; labels are by goal."""
    tones = {"met": "good", "the least": "", "missed": "bad"}
    rows = []
    for goal, names in zip(goals, labels, strict=True):
        cells = [
            c if not goal.measured else c.replace(goal.measured[0][1].problem, names[goal.measured[0][1].problem]) for c in list_cells(goal)
        ]
        rows.append({"cells": cells, "tone": tones.get(goal.verdict, "")})
    return rows


def find_reach(comparisons: pd.DataFrame) -> tuple[float, float]:
    """Return how far intervals reach below and above no change, as shares; both are positive."""
    shown = comparisons[comparisons.verdict != FAILED]
    low = min([0.0, *shown.low, *comparisons.control_low])
    return -low, max([0.0, *shown.high, *comparisons.control_high])
