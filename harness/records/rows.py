"""Rows of the table of records: for a result, a point of a published sweep, a problem of published goals."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from contract.documents import parse_json
from harness.errors import RecordUseError
from harness.records.provenance import Commit
from harness.records.sweeps import Sweep
from harness.records.tables import Result, read_clocks, read_samples
from harness.timing.stats import find_ratio_interval

_TIMES = ("median_us", "q1_us", "q3_us")
_TUNABLE = re.compile(r"([a-z]+)(\d+)")

_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_EMPTY = np.empty(0, np.float32)
# What rows of published files have in common, which are no records.
_NOTHING: Mapping[str, Any] = {
    "source": "published",
    "record": -1,
    "run": -1,
    "dirty": False,
    "device_kind": "cuda",
    "device_uuid": "",
    "driver": 0,
    "host": "",
    "is_peer": False,
    "mode": "cold",
    **dict.fromkeys((*_TIMES, "low_us", "high_us", "clock_mhz"), np.nan),
    **dict.fromkeys(("num_samples", "num_throttled"), 0),
    **dict.fromkeys(("samples_us", "clocks_mhz"), _EMPTY),
    **dict.fromkeys(("clock_label", "inputs", "key", "code_hash", "flags"), ""),
    "figures": {},
}


def make_row(r: Result, source: str) -> dict[str, Any]:
    """Return a result's row; ``source`` says where it is kept."""
    run, place, f = r.run, r.run.environment, r.figures
    return {
        "source": source,
        "record": r.id,
        "run": r.run_id,
        "uid": r.uid,
        "run_uid": run.uid,
        "created_at": _read_time(r.created_at),
        "started_at": _read_time(run.started_at),
        "command": run.command,
        "commit": run.commit,
        "dirty": run.dirty,
        "device_kind": r.device_kind,
        "device": place.device_name,
        "device_uuid": str(f.get("gpu") or place.device_uuid),  # a sweep may measure on several
        "driver": place.driver_version,
        "toolchain": place.toolchain,
        "target": place.target,
        "host": place.host,
        "kind": r.kind,
        "op": r.op,
        **_name_variant(r.variant),
        "is_peer": r.kind == "bench" and not r.key,
        "problem": r.problem,
        "status": r.status,
        "reason": r.reason,
        "mode": str(f.get("mode", "")),
        **{name: _read_number(f.get(name)) for name in _TIMES},
        "low_us": _read_number(f.get("median_low_us")),
        "high_us": _read_number(f.get("median_high_us")),
        "num_samples": int(f.get("num_samples") or len(read_samples(r))),
        "num_throttled": int(f.get("num_throttled") or 0),
        "samples_us": read_samples(r),
        "clocks_mhz": read_clocks(r),
        "clock_mhz": _read_number(f.get("clock_mhz")),
        "clock_label": r.clock_label,
        "inputs": r.inputs,
        "key": r.key,
        "code_hash": r.code_hash,
        "flags": r.flags,
        "figures": dict(f),
    }


def make_sweep_rows(name: str, sweep: Sweep) -> Iterator[dict[str, Any]]:
    """Yield the points of a published sweep; what a point does not say is empty."""
    about = sweep.about
    date = _read_time(about["date"])
    for i, p in enumerate(sweep.points):
        yield {
            **_NOTHING,
            "uid": f"{name}:{i}",
            "run_uid": name,
            "created_at": date,
            "started_at": date,
            "command": f"sweep {p.op}",
            "commit": about["commit"],
            "device": about["device"],
            "toolchain": about["toolchain"],
            "target": about["target"],
            "kind": "sweep",
            "op": p.op,
            **_name_variant(p.variant),
            "problem": p.problem,
            "status": p.status,
            "reason": p.reason,
            **{f: getattr(p, f) if p.status == "passed" else np.nan for f in _TIMES},
            "num_samples": p.num_samples,
            "clock_mhz": _read_number(p.clock_mhz),
            "code_hash": p.code_hash,
        }


def make_goal_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield a row per problem of published goals (``compare --publish``), with the figures that a record of kind ``goal`` has.

    Such a file has no date: its rows are older than all others. Raises :class:`RecordError` for a file that holds anything else.
    """
    try:
        document = parse_json(path.read_text(), strict=False)
        place, commit = document["environment"], Commit.read(document["commit"])
        for goal in document["goals"]:
            about = {name: goal[name] for name in ("goal", "title", "peers", "aim", "least", "worst")}
            for ratio in goal["problems"]:
                yield {
                    **_NOTHING,
                    "uid": f"{path.name}:{goal['goal']}:{ratio['problem']}",
                    "run_uid": path.name,
                    "created_at": _EARLIEST,
                    "started_at": _EARLIEST,
                    "command": document["command"],
                    "commit": commit.sha,
                    "dirty": commit.dirty,
                    "device_kind": place["device_kind"],
                    "device": place["device_name"],
                    "device_uuid": place["device_uuid"],
                    "driver": place["driver_version"],
                    "toolchain": place["toolchain"],
                    "target": place["target"],
                    "host": place["host"],
                    "kind": "goal",
                    "op": document["op"],
                    **_name_variant(ratio["variant"]),
                    "problem": ratio["problem"],
                    "status": "failed" if ratio["own_us"] is None else "passed",
                    "reason": ratio["reason"] if ratio["ratio"] is None else "",
                    "median_us": _read_number(ratio["own_us"]),
                    "figures": about | _find_bounds(ratio, document["timings"]) | ratio | {"mode": "cold", "median_us": ratio["own_us"]},
                }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordUseError(f"{path} holds no goals: {type(error).__name__}: {error}") from error


def _find_bounds(ratio: Mapping[str, Any], timings: Mapping[str, Any]) -> dict[str, float]:
    """Return the interval of a ratio from its contenders' own, for files that do not have it."""
    if ratio["ratio"] is None:
        return {}
    contenders = [timings[ratio["problem"]][ratio[name]] for name in ("peer", "variant")]
    over, under = ((f["median_us"], f["median_low_us"], f["median_high_us"]) for f in contenders)
    return dict(zip(("low", "high"), find_ratio_interval(over, under), strict=True))


def _name_variant(variant: str) -> dict[str, Any]:
    return {"kernel": variant.partition("/")[0], "variant": variant, "tunables": parse_tunables(variant)}


def parse_tunables(variant: str) -> dict[str, int]:
    """Return the tunables that a variant's name binds; none for a kernel that has none, and for a peer."""
    return {k: int(v) for k, v in _TUNABLE.findall(variant.partition("/")[2])}


def _read_time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _read_number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else np.nan
