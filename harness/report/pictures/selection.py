"""Which records are shown: the newest run of each problem on one GPU, the verdicts, the counters, and the earlier runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from harness.spec import Op


def find_device(frame: pd.DataFrame) -> str:
    """Return the name of the GPU that was timed last, "" where none was."""
    timed = frame[(frame.device_kind == "cuda") & frame.kind.isin(("bench", "sweep", "compare", "goal")) & (frame.status == "passed")]
    return "" if timed.empty else str(timed.sort_values("started_at").device.iloc[-1])


def select_latest(frame: pd.DataFrame, op: Op, device: str) -> pd.DataFrame:
    """Return the bench results of each problem's newest run on a device, in the order of the op's problems; a variant and mode once."""
    bench = frame[(frame.kind == "bench") & (frame.device == device)]
    # Who measured a few variants again did not withdraw the others: of each build the newest counts.
    newest = bench.sort_values(["started_at", "record"]).drop_duplicates(["problem", "variant", "mode"], keep="last")
    order = {p.name: i for i, p in enumerate(op.problems)}
    ladder = {k.name: i for i, k in enumerate(op.kernels)}
    return (
        newest.assign(_problem=newest.problem.map(order).fillna(len(order)), _kernel=newest.kernel.map(ladder).fillna(-1))
        .sort_values(["_problem", "_kernel", "variant", "mode"], kind="stable")
        .drop(columns=["_problem", "_kernel"])
    )


def select_timed(latest: pd.DataFrame, mode: str = "cold") -> pd.DataFrame:
    """Return the results that have a time in this mode."""
    return latest[(latest.status == "passed") & (latest["mode"] == mode) & latest.median_us.notna()]


def select_measured(frame: pd.DataFrame, op: Op, device: str) -> pd.DataFrame:
    """Return every cold time of a device: of each problem's newest bench, and of the op's choices for its goals where there is no other."""
    timed = select_timed(select_latest(frame, op, device))
    goals = frame[(frame.kind == "goal") & (frame.device == device) & (frame.status == "passed") & frame.median_us.notna()]
    newest = goals.sort_values(["started_at", "record"]).drop_duplicates(["problem", "variant"], keep="last")
    known = pd.MultiIndex.from_frame(timed[["problem", "variant"]])
    return pd.concat([timed, newest[~pd.MultiIndex.from_frame(newest[["problem", "variant"]]).isin(known)]])


def find_best(timed: pd.DataFrame) -> pd.DataFrame:
    """Return the fastest own variant of each problem, with ``peer_us`` and ``peer`` of the fastest peer (NaN and "" without one)."""
    own = timed[~timed.is_peer]
    best = own.loc[own.groupby("problem", sort=False).median_us.idxmin()].copy() if len(own) else own.copy()
    peers = timed[timed.is_peer]
    fastest = peers.loc[peers.groupby("problem").median_us.idxmin()].set_index("problem") if len(peers) else peers.set_index("problem")
    best["peer_us"] = best.problem.map(fastest.median_us).astype(float)
    best["peer"] = [fastest.variant.get(problem, "") for problem in best.problem]
    return best


def select_sweeps(frame: pd.DataFrame, device: str) -> pd.DataFrame:
    """Return what sweeps timed on a device, each variant on a problem once: its newest time."""
    sweeps = frame[(frame.kind == "sweep") & (frame.device == device) & (frame.status == "passed") & (frame.median_us > 0)]
    return sweeps.sort_values("started_at", kind="stable").drop_duplicates(["problem", "variant"], keep="last")


def select_modelled(frame: pd.DataFrame) -> pd.DataFrame:
    """Return what sweeps without a GPU ranked by the time model, each variant on a problem and target once: times are the model's."""
    modelled = frame[(frame.kind == "sweep_model") & (frame.status == "passed") & (frame.median_us > 0)]
    return modelled.sort_values("started_at", kind="stable").drop_duplicates(["problem", "variant", "target"], keep="last")


def find_verdicts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return each variant's newest verdict on all problems, by variant; of a GPU's and the emulated device's one that failed counts."""
    verdicts = frame[(frame.kind == "verify") & (frame.problem == "*")].sort_values(["created_at", "record"])
    newest = verdicts.drop_duplicates(["variant", "device_kind"], keep="last")
    worst_last = newest.assign(_failed=newest.status != "passed").sort_values("_failed", kind="stable")
    return worst_last.drop_duplicates("variant", keep="last").drop(columns="_failed").set_index("variant")


def find_counters(frame: pd.DataFrame) -> pd.DataFrame:
    """Return each variant's newest counters of the emulated device on each problem."""
    counted = frame[(frame.kind == "counters") & (frame.status == "passed")]
    return counted.sort_values(["created_at", "record"]).drop_duplicates(["variant", "problem"], keep="last")


def find_profiles(frame: pd.DataFrame) -> pd.DataFrame:
    """Return each variant's newest profile on each problem."""
    profiles = frame[(frame.kind == "profile") & (frame.status == "passed")]
    return profiles.sort_values(["created_at", "record"]).drop_duplicates(["variant", "problem"], keep="last")


def make_history(frame: pd.DataFrame, device: str, problems: Sequence[str]) -> pd.DataFrame:
    """Return the fastest own cold time of each problem in each run that timed at least half as many own variants as any did.

    A run of a few variants, or one that was cut short, says nothing about the op. Columns:
    problem, commit, started_at, run_uid, median_us, variant, share_of_peer.
    """
    bench = select_timed(frame[(frame.kind == "bench") & (frame.device == device) & frame.problem.isin(list(problems))])
    own = bench[~bench.is_peer]
    if own.empty:
        return own.assign(num_variants=[])
    grouped = own.groupby(["problem", "run_uid"])
    best = own.loc[grouped.median_us.idxmin()].copy()
    best["num_variants"] = best.set_index(["problem", "run_uid"]).index.map(grouped.variant.nunique()).to_numpy()
    best = best.sort_values("started_at")
    most = best.groupby("problem").num_variants.max()
    return best[best.num_variants >= np.ceil(best.problem.map(most) / 2)]
