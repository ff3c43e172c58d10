"""The page's tables as plain values, ready to print: times, builds, counters, profiles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from harness.compare.goals import Row as Goals
from harness.model.counters import find_sectors_per_request, sum_counts
from harness.report.pictures.contests import FAILED, VOID, count_verdicts
from harness.report.pictures.labels import shorten_variants
from harness.spec import Op
from harness.terminal.figures import format_count

Cells = dict[str, Any]


@dataclass(frozen=True)
class Tile:
    """A figure at the head of the page: what is counted, the figure, how it is to be read, and what it speaks of.

    ``tone`` is ``good``, ``bad`` or "".
    """

    name: str
    value: str
    note: str
    source: str
    tone: str = ""


def format_time(value: Any) -> str:
    """Return microseconds with four digits, "" where there are none."""
    if value is None or not math.isfinite(value):
        return ""
    return f"{value:.4g}" if value < 1000 else f"{value:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def format_percent(share: Any) -> str:
    """Return a share as percent, "" where there is none."""
    return "" if share is None or not math.isfinite(share) else f"{100 * share:.1f} %"


def describe_place(frame: pd.DataFrame, latest: pd.DataFrame) -> dict[str, str]:
    """Return where and from what the newest results are."""
    rows = latest if len(latest) else frame
    last = rows.sort_values("started_at").iloc[-1]
    commits = list(dict.fromkeys(f"{c[:10] or 'none'}{' with changes' if d else ''}" for c, d in zip(rows.commit, rows.dirty, strict=True)))
    return {
        "Device": str(last.device),
        "Toolchain": str(last.toolchain).split(";")[0]
        + (f" · CUDA driver {last.driver // 1000}.{last.driver % 1000 // 10}" if last.driver else ""),
        "Commit": ", ".join(commits[-3:]) + (f" and {len(commits) - 3} more" if len(commits) > 3 else ""),
        "Measured" if last.device_kind == "cuda" else "Recorded": f"{last.started_at:%Y-%m-%d %H:%M} UTC"
        if last.started_at.year > 1970
        else "",
        "Clock": str(last.clock_label),
        "Records": str(frame.attrs.get("source", "")),
    }


def describe_source(*frames: pd.DataFrame) -> str:
    """Return which devices and commits results speak of: ``NVIDIA H200, commit 1a2b3c4; emulated, commits 5d6e7f8 and 2 before it``."""
    rows = pd.concat([f[["device", "device_kind", "commit", "dirty", "started_at"]] for f in frames if len(f)] or [pd.DataFrame()])
    if rows.empty:
        return ""
    named = rows.assign(place=np.where(rows.device_kind == "emulated", "emulated", rows.device)).sort_values("started_at", kind="stable")
    said = []
    for place, group in named.groupby("place", sort=False):
        changed = np.where(group.dirty.astype(bool), " with changes", "")
        commits = list(dict.fromkeys((group.commit.str[:7].where(group.commit != "", "none") + changed)[::-1]))
        before = f" and {len(commits) - 1} before it" if len(commits) > 1 else ""
        said.append(f"{place}, commit{'s' if before else ''} {commits[0]}{before}")
    return "; ".join(said)


def make_tiles(
    op: Op, timed: pd.DataFrame, verdicts: pd.DataFrame, compared: pd.DataFrame, goals: Sequence[Goals], goal_rows: pd.DataFrame
) -> list[Tile]:
    """Return the figures that come first."""
    tiles = []
    of_timed = describe_source(timed)
    if len(verdicts):
        passed, total = int((verdicts.status == "passed").sum()), len(verdicts)
        tiles.append(
            Tile(
                "verified",
                f"{passed} of {total}",
                "variants, on every problem",
                describe_source(verdicts),
                "good" if passed == total else "bad",
            )
        )
    own = timed[~timed.is_peer]
    if len(own):
        best = own.loc[own.groupby("problem").median_us.idxmin()]
        tiles.append(Tile("timed", str(own.variant.nunique()), f"variants on {len(best)} problem{'s' if len(best) > 1 else ''}", of_timed))
        share = f"{100 * best.share_of_floor.max():.0f} %"
        tiles.append(Tile("of the roofline", share, "at most, by the fastest variant of a problem", of_timed))
        shares = best.share_of_peer[best.share_of_peer.notna()]
        if len(shares):
            mean = float(np.exp(np.log(shares).mean()))
            note = f"of the fastest library's rate: geometric mean, {int((shares >= 1).sum())} of {len(shares)} faster"
            tiles.append(Tile("against libraries", f"{100 * mean:.0f} %", note, of_timed, "good" if mean >= 1 else ""))
    if goals:
        met = sum(g.verdict == "met" for g in goals)
        missed = sum(g.verdict == "missed" for g in goals)
        note = f"met, {missed} missed: the op's own choices beside {len({p for g in goals for p in g.goal.peers})} peers"
        tiles.append(
            Tile(
                "goals",
                f"{met} of {len(goals)}",
                note,
                describe_source(goal_rows),
                "good" if met == len(goals) else "bad" if missed else "",
            )
        )
    if len(compared):
        slower = bool(compared.verdict.isin(["SLOWER", VOID, FAILED]).any())
        tiles.append(Tile("compared", str(len(compared)), count_verdicts(compared), describe_source(compared), "bad" if slower else ""))
    return tiles


def make_best_rows(best: pd.DataFrame, latest: pd.DataFrame, labels: Mapping[str, str]) -> list[Cells]:
    """Return the fastest variant of each problem."""
    hot = latest[latest["mode"] == "hot"].set_index(["problem", "variant"]).median_us
    names = shorten_variants(latest.variant)
    return [
        {
            "problem": labels[r.problem],
            "title": r.problem,
            "bound": r.bound,
            "variant": names[r.variant],
            "full": r.variant,
            "cold": format_time(r.median_us),
            "spread": f"{100 * (r.q3_us - r.q1_us) / r.median_us:.1f}",
            "hot": format_time(hot.get((r.problem, r.variant))),
            "rate": _format_rate(r),
            "floor": format_percent(r.share_of_floor),
            "floor_share": 0.0 if math.isnan(r.share_of_floor) else min(r.share_of_floor, 1.0),
            "peer": r.peer,
            "share": format_percent(r.share_of_peer),
            "faster": bool(r.share_of_peer >= 1),
        }
        for r in best.itertuples()
    ]


def _format_rate(r: Any) -> str:
    if math.isnan(r.tflops):
        return ""
    return f"{r.tflops:.4g} TFLOP/s" if r.bound == "compute" else f"{r.gbytes_s:.0f} GB/s"


def make_time_rows(rows: pd.DataFrame) -> list[Cells]:
    """Return all variants and peers on one problem that were timed or failed, the fastest first."""
    names = shorten_variants(rows.variant)
    hot = rows[rows["mode"] == "hot"].set_index("variant").median_us
    cold = rows[(rows["mode"] != "hot") & (rows.status != "unsupported")].sort_values("median_us", na_position="last", kind="stable")
    fastest = cold.median_us.min()
    found = []
    for r in cold.itertuples():
        passed = r.status == "passed"
        found.append(
            {
                "variant": names[r.variant],
                "full": r.variant,
                "peer": r.is_peer,
                "status": r.status,
                "reason": r.reason,
                "cold": format_time(r.median_us) if passed else "",
                "times": "" if not passed else f"{r.median_us / fastest:.2f}",
                "bar": 0.0 if not passed else fastest / r.median_us,
                "spread": f"{100 * (r.q3_us - r.q1_us) / r.median_us:.1f}" if passed else "",
                "hot": format_time(hot.get(r.variant)),
                "rate": _format_rate(r).split(" ")[0] if passed else "",
                "floor": format_percent(r.share_of_floor) if passed else "",
                "samples": r.num_samples if passed else "",
                "clock": "" if math.isnan(r.clock_mhz) else f"{r.clock_mhz:.0f}",
            }
        )
    return found


def list_unserved(rows: pd.DataFrame) -> list[str]:
    """Return the variants and peers that do not serve the problem, joined where the reason is the same."""
    names = shorten_variants(rows.variant)
    unserved = rows[rows.status == "unsupported"].drop_duplicates("variant")
    return [f"{', '.join(names[v] for v in group.variant)}: {reason}" for reason, group in unserved.groupby("reason", sort=False)]


def make_variant_rows(op: Op, latest: pd.DataFrame, verdicts: pd.DataFrame) -> list[Cells]:
    """Return each own variant with its verdict and what the compiler made of it, in the order of the op's ladder."""
    own = latest[~latest.is_peer]
    statics: dict[str, Mapping[str, Any]] = {
        str(r.variant): r.figures["statics"] for r in own.itertuples() if (r.figures.get("statics") or {}).get("registers") is not None
    }
    listed = [v.name for v in op.variants]
    found = set(own.variant) | set(verdicts.index)
    known = [n for n in listed if n in found] + sorted(found - set(listed))
    names, ideas = shorten_variants(known), {k.name: k.idea for k in op.kernels}
    rows = []
    for name in known:
        verdict = verdicts.loc[name] if name in verdicts.index else None
        s = statics.get(name, {})
        rows.append(
            {
                "variant": names[name],
                "full": name,
                "idea": ideas.get(name.partition("/")[0], "a kernel of an earlier commit"),
                "status": "not verified" if verdict is None else str(verdict.status),
                "reason": "" if verdict is None else str(verdict.reason),
                "registers": s.get("registers"),
                "shared": s.get("shared_bytes"),
                "spills": s.get("spill_bytes"),
                "occupancy": s.get("occupancy"),
                "limiter": s.get("limiter", ""),
            }
        )
    return rows


def make_counter_rows(op: Op, counters: pd.DataFrame, labels: Mapping[str, str]) -> list[Cells]:
    """Return what the emulated device counted, problem by problem, in the order of the op's ladder."""
    names = shorten_variants(counters.variant)
    ladder = {v.name: i for i, v in enumerate(op.variants)}
    problems = {name: i for i, name in enumerate(dict.fromkeys(counters.problem))}
    order = sorted(counters.itertuples(), key=lambda r: (problems[r.problem], ladder.get(r.variant, len(ladder)), r.variant))
    rows = []
    for r in order:
        counts = sum_counts([launch["counts"] for launch in r.figures.get("launches", ())])
        if counts:
            conflicts = sum(counts.get(n, 0) for n in ("shared_load_conflicts", "shared_store_conflicts", "shared_atomic_conflicts"))
            rows.append(
                {
                    "variant": names[r.variant],
                    "full": r.variant,
                    "problem": labels[r.problem],
                    "instructions": format_count(counts.get("warp_instructions", 0)),
                    "sectors": f"{find_sectors_per_request(counts):.3g}",
                    "conflicts": format_count(conflicts),
                    "traffic": format_count(counts.get("global_unique_bytes_read", 0) + counts.get("global_unique_bytes_written", 0)),
                }
            )
    return rows


def make_profile_rows(profiles: pd.DataFrame, labels: Mapping[str, str]) -> list[Cells]:
    """Return what Nsight Compute said of variants: their bound, top stalls, and what to try."""
    names = shorten_variants(profiles.variant)
    return [
        {"variant": names[r.variant], "full": r.variant, "problem": labels.get(r.problem, r.problem), **_read_summary(r.figures)}
        for r in profiles.itertuples()
    ]


def _read_summary(figures: Mapping[str, Any]) -> dict[str, Any]:
    summary = figures.get("summary", {})
    keys: Sequence[str] = ("bound", "facts", "stalls", "advice", "lines")
    found = {key: summary.get(key, "" if key == "bound" else []) for key in keys}
    return found | {"tool": str(figures.get("tool", ""))}
