"""What ``bench`` does with verified variants: counters and a modelled time on the emulated device, times with the peers on a GPU.

Every figure is recorded as soon as it is there. Counters are exact, so those of an unchanged build in an unchanged environment are
taken from the records; times are always measured anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from device.interface import KernelNode
from device.observer import LaunchCounters
from harness.benchmark.rows import BenchRow, Statics
from harness.benchmark.session import Judged, Session
from harness.benchmark.workers import Counted, Job, count_variants
from harness.build.binding import open_variant
from harness.build.builder import BuildResult
from harness.build.resources import find_occupancy
from harness.model.counters import sum_counts
from harness.model.features import read_features
from harness.model.launches import LaunchFacts, examine_launch
from harness.model.roofline import MODEL_NOTE, find_floor, model_launches
from harness.model.time_model import has_machine, load_machine, predict
from harness.spec import Launchable, Peer, Problem
from harness.targets import Target
from harness.timing.rounds import TIMING_DISTRIBUTION, Timed, time_problem
from harness.timing.timer import Timer

OnText = Callable[[str], None]


def make_rows(session: Session, judged: Sequence[Judged], problem: Problem) -> dict[str, BenchRow]:
    """Return a row per variant with what is known before anything is counted or timed."""
    op = session.loaded.op
    cost = op.cost(problem)
    floor = find_floor(cost, session.target)
    return {
        j.variant.name: BenchRow(
            op=op.name,
            variant=j.variant.name,
            problem=problem.name,
            device="emulated" if session.device.is_emulated else session.device.properties.name,
            verified="passed" if j.ok else "failed",
            reason=j.reason,
            statics=find_statics(j.build, (), session.target),
            floor_us=floor.total_us,
            floor_bound=floor.bound,
            flops=cost.flops,
            bytes_moved=cost.bytes_moved,
        )
        for j in judged
    }


def find_statics(build: BuildResult, nodes: Sequence[KernelNode], target: Target) -> Statics:
    """Combine ptxas' figures with the launch's geometry: dynamic shared memory, and the lowest occupancy of the launch's kernels."""
    r = build.resources
    if r is None:
        return Statics()
    statics = Statics(r.registers, r.shared_bytes, r.spill_bytes)
    if not nodes:
        return statics
    found = [find_occupancy(r, n.block[0] * n.block[1] * n.block[2], n.dynamic_shared_bytes, target) for n in nodes]
    lowest = min(found, key=lambda o: o.share)
    shared = r.shared_bytes + max(n.dynamic_shared_bytes for n in nodes)
    return replace(statics, shared_bytes=shared, occupancy=lowest.share, limiter=lowest.limiter)


def count_on_emulator(
    session: Session, judged: Sequence[Judged], binding: Path, problems: Sequence[Problem], on_counted: Callable[[str, bool], None]
) -> list[BenchRow]:
    """Count every verified variant on every problem, and return each problem's rows; counters of the same build are read from the records.

    ``on_counted`` hears of every variant, and whether all its counters were known.
    """
    facts = _find_facts(session, judged, binding, problems, on_counted)
    rows = []
    for problem in problems:
        made = make_rows(session, judged, problem)
        for j in judged:
            row, found = made[j.variant.name], facts.get((j.variant.name, problem.name))
            rows.append(fill_counts(row, j.build, found, session.target) if found else row)
    return rows


def _find_facts(
    session: Session, judged: Sequence[Judged], binding: Path, problems: Sequence[Problem], on_counted: Callable[[str, bool], None]
) -> dict[tuple[str, str], LaunchFacts]:
    facts: dict[tuple[str, str], LaunchFacts] = {}
    jobs = []
    passed = [j for j in judged if j.ok]
    for j in passed:
        missing = []
        for problem in problems:
            earlier = session.find_earlier("counters", j.build, problem.name)
            if earlier is None or "features" not in earlier.figures:
                missing.append(problem.name)
            else:
                facts[j.variant.name, problem.name] = read_facts(earlier.figures)
        if missing and j.build.library is not None:
            jobs.append(Job(j.variant, j.build.library, tuple(missing)))
        else:
            on_counted(j.variant.name, True)
    if not jobs:
        return facts
    builds = {j.variant.name: j.build for j in passed}
    setup, num_workers = session.make_worker_setup(binding, len(jobs))
    for job, counted in count_variants(setup, jobs, num_workers=num_workers):
        _record_counts(session, builds[job.variant.name], counted)
        facts.update(((job.variant.name, name), fact) for name, fact in counted.facts.items())
        on_counted(job.variant.name, False)
    return facts


def _record_counts(session: Session, build: BuildResult, counted: Counted) -> None:
    for name, facts in counted.facts.items():
        if facts.lost:
            continue
        status = "unsupported" if facts.reason else "passed"
        session.record(
            build, kind="counters", variant=counted.variant, problem=name, status=status, reason=facts.reason, figures=write_facts(facts)
        )


def write_facts(facts: LaunchFacts) -> dict[str, Any]:
    """Return a launch's facts as plain values, for the records."""
    return {
        "reason": facts.reason,
        "nodes": [asdict(n) for n in facts.nodes],
        "launches": [asdict(c) for c in facts.counters],
        "features": None if facts.features is None else asdict(facts.features),
    }


def read_facts(figures: Mapping[str, Any]) -> LaunchFacts:
    """Return what :func:`write_facts` wrote."""
    nodes = tuple(KernelNode(n["name"], tuple(n["grid"]), tuple(n["block"]), n["dynamic_shared_bytes"]) for n in figures["nodes"])
    launches = tuple(LaunchCounters(c["kernel"], tuple(c["grid"]), tuple(c["block"]), c["counts"]) for c in figures["launches"])
    features = figures["features"]
    return LaunchFacts(figures["reason"], nodes, launches, features=None if features is None else read_features(features))


def fill_counts(row: BenchRow, build: BuildResult, facts: LaunchFacts, target: Target) -> BenchRow:
    """Return the row with counts, occupancy and the modelled time."""
    if facts.reason:
        return replace(row, verified="failed" if facts.lost else "unsupported", reason=facts.reason)
    row = replace(row, statics=find_statics(build, facts.nodes, target), counts=sum_counts([c.counts for c in facts.counters]))
    if facts.features is not None and has_machine(target.name):
        found = predict(facts.features, target)
        note = load_machine(target.name).make_note(row.op, row.variant)
        interval_us = (found.low_us, found.high_us)
        return replace(row, model_us=found.time_us, model_interval_us=interval_us, model_pipe=found.bound, note=note)
    model = model_launches(facts.counters, target)
    return replace(row, model_us=model.total_us, model_pipe=model.pipe, note=MODEL_NOTE)


def find_note(rows: Sequence[BenchRow]) -> str:
    """Return how far the modelled times can be trusted, "" where there are none."""
    return "; ".join(dict.fromkeys(row.note for row in rows if row.note))


def open_peers(peers: Sequence[Peer], say: OnText) -> list[tuple[str, Launchable]]:
    """Open the peers whose libraries are there; say which are not."""
    opened = []
    for peer in peers:
        try:
            opened.append((peer.name, peer.open()))
        except ImportError as error:
            say(f"peer {peer.name} left out: {peer.library} cannot be imported ({error})")
    return opened


def time_on_gpu(
    session: Session,
    judged: Sequence[Judged],
    binding: Path,
    problems: Sequence[Problem],
    peers: Sequence[tuple[str, Launchable]],
    on_timed: OnText,
) -> Iterator[list[BenchRow]]:
    """Time every verified variant and opened peer, problem by problem, recording each; yield each problem's rows when they are complete."""
    op = session.loaded.op
    builds = {j.variant.name: j.build for j in judged}
    entries = [
        (j.variant.name, open_variant(op, binding, j.build.library, j.variant)) for j in judged if j.ok and j.build.library is not None
    ]
    timer = Timer(session.device)
    try:
        for problem in problems:
            rows = make_rows(session, judged, problem)
            template = next(iter(rows.values()))
            for name, launchable in entries:
                nodes = examine_launch(session.device, op, problem, launchable).nodes
                rows[name] = replace(rows[name], statics=find_statics(builds[name], nodes, session.target))
            for timed in time_problem(session.device, timer, op, problem, [*peers, *entries], session.target):
                is_peer = timed.name not in builds
                row = (
                    replace(template, variant=timed.name, verified="peer", is_peer=True, statics=Statics()) if is_peer else rows[timed.name]
                )
                rows[timed.name] = fill_times(row, timed)
                record_timed(session, builds.get(timed.name), timed, rows[timed.name].statics)
                on_timed(f"{problem.name} {timed.name}: {describe_timed(timed)}")
            yield compare_with_peers(list(rows.values()))
    finally:
        timer.close()


def fill_times(row: BenchRow, timed: Timed) -> BenchRow:
    """Return the row with the timings, or with the reason why there are none."""
    if timed.status != "passed":
        return replace(row, verified=timed.status, reason=timed.reason)
    assert timed.cold is not None
    return replace(row, cold=timed.cold.to_figures(), hot=timed.hot.to_figures() if timed.hot else None, reason=timed.reason)


def record_timed(session: Session, build: BuildResult | None, timed: Timed, statics: Statics | None = None) -> None:
    """Insert one result per timing with all its samples, or one that says why there is none; a build's own figures go with each.

    ``statics`` are the build's where the launch's geometry is known too.
    """
    own = {} if build is None else {"statics": asdict(statics or find_statics(build, (), session.target))}
    common = {"kind": "bench", "variant": timed.name, "problem": timed.problem, "status": timed.status, "reason": timed.reason}
    timings = [t for t in (timed.cold, timed.hot) if t is not None]
    for timing in timings:
        session.record(
            build,
            **common,
            figures=timing.to_figures() | {"checked": timed.checked} | own,
            samples=timing.samples_us,
            clocks=timing.clocks_mhz,
            clock_label=timing.clock_label,
            inputs=TIMING_DISTRIBUTION,
        )
    if not timings:
        session.record(build, **common, figures=own)


def describe_timed(timed: Timed) -> str:
    """Say a timing in a few words."""
    found = [f"{t.mode} {t.summary.median:.2f} us ({t.stop_reason})" for t in (timed.cold, timed.hot) if t is not None]
    if timed.status != "passed":
        found.insert(0, timed.status)
    return ", ".join([*found, timed.reason] if timed.reason else found)


def compare_with_peers(rows: Sequence[BenchRow]) -> list[BenchRow]:
    """Fill in each row's speed as a share of the fastest peer's, by cold medians."""
    best = min((r.order_us for r in rows if r.is_peer), default=float("inf"))
    return [replace(r, share_of_best_peer=best / r.order_us) if best < float("inf") and r.cold is not None else r for r in rows]
