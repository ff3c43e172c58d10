"""Kernels that an op's population needs beyond the winners of its buckets: as few as make up for what the frozen set lacks there.

A bucket is decided on the problems that the op lists. On drawn problems another variant may be faster; it comes into the set with the role
``population``, and is chosen where it was measured or by a survey, never by a bucket.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from contract.axes import name_bucket
from contract.index import Index, Row
from contract.kernels import read_kernel
from harness.benchmark.session import Session
from harness.freezing.decide.buckets import make_fallback_bucket
from harness.freezing.decide.entries import Placement, Writing, apply_writing, gather
from harness.freezing.decide.promote import Decision, Request
from harness.freezing.decide.recorded_times import RecordedMatch, Recording
from harness.freezing.gates.candidate import Candidate
from harness.spec import Problem

ROLE = "population"
# A kernel is worth its place where it makes the mean problem so much faster, or so many problems faster by a tenth.
LEAST_GAIN, LEAST_RESCUED, RESCUED = 0.002, 2, 1.1
# A kernel leaves the set where so many problems show that it may: it was near the fastest on them, and nowhere are others more than
# nearly as fast now. A kernel for what is seldom drawn comes up too seldom to be judged by one draw, and is missed most there.
LEAST_SHOWN, NEAR, NEARLY = 10, 1.1, 1.03
# Evidence has the problems on which a kernel gains the most.
_MAX_CONTESTS = 24

Times = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Pick:
    """A kernel or variant that is worth its place: by what share it shortens the mean problem, and the problems on which it is the fastest.

    ``problems`` are in the order of what it gains there, the most first, by name with the ratio of times without and with it.
    """

    name: str
    gain: float
    problems: tuple[tuple[str, float], ...]

    def describe(self) -> str:
        """Return one line."""
        where, ratio = self.problems[0]
        return f"the mean problem {100 * self.gain:.2f} % faster, {len(self.problems)} problems, {where} by {ratio:.2f}"


def cover(times: Times, base: Collection[str], candidates: Collection[str]) -> list[Pick]:
    """Return which candidates a set that has ``base`` needs, the most useful first: each time the one that shortens the mean problem most.

    ``times`` are microseconds by problem and contender. A problem that none of ``base`` was timed on counts as if the set took as long as
    the slowest candidate there.
    """
    rows = {problem: {n: us for n, us in row.items() if n in base or n in candidates} for problem, row in times.items()}
    rows = {problem: row for problem, row in rows.items() if row}
    now = {p: min((us for n, us in row.items() if n in base), default=max(row.values())) for p, row in rows.items()}
    left, picks = set(candidates), []
    while left:
        worth_it = filter(_is_worth_it, (_weigh(name, rows, now) for name in sorted(left)))
        best = max(worth_it, key=lambda pick: pick.gain, default=None)
        if best is None:
            break
        picks.append(best)
        left.discard(best.name)
        now |= {p: min(now[p], rows[p][best.name]) for p, _ in best.problems}
    return picks


def _weigh(name: str, rows: Times, now: Mapping[str, float]) -> Pick:
    ratios = {p: now[p] / row[name] for p, row in rows.items() if name in row and row[name] < now[p]}
    gain = math.exp(sum(math.log(ratio) for ratio in ratios.values()) / len(rows)) - 1.0
    return Pick(name, gain, tuple(sorted(ratios.items(), key=lambda item: -item[1])))


def _is_worth_it(pick: Pick) -> bool:
    return pick.gain >= LEAST_GAIN or sum(ratio >= RESCUED for _, ratio in pick.problems) >= LEAST_RESCUED


def find_superfluous(times: Times, base: Collection[str], own: Collection[str], picked: Collection[str]) -> list[str]:
    """Return which kernels of ``own`` a set of them, of ``base`` and of what was ``picked`` does as well without, as problems show."""
    found: list[str] = []
    for name in sorted(own):
        before = (set(base) | set(own)) - {name}
        now = (before | set(picked)) - set(found)
        rows = [row for row in times.values() if name in row]
        shown = sum(row[name] <= NEAR * _find_least(row, before) for row in rows)
        if shown >= LEAST_SHOWN and all(_find_least(row, now) <= NEARLY * row[name] for row in rows):
            found.append(name)
    return found


def _find_least(row: Mapping[str, float], names: Collection[str]) -> float:
    return min((us for name, us in row.items() if name in names), default=math.inf)


def find_needed(
    frozen: Index, arch: str, recording: Recording, variants: Collection[str], *, forced: bool = False
) -> tuple[list[Pick], list[Row]]:
    """Return what the population needs, of ``variants`` and of the population's kernels in the set, and the entries that it needs no more.

    A kernel of the population that is none of the needed stays all the same where few problems say so (:func:`find_superfluous`).

    A variant that the set has, with the code that was timed, is none, unless it is ``forced``: the host's code, which is not compared, may
    launch it otherwise.
    """
    held = [e for e in frozen.entries if e["bucket"]["arch"] == arch]
    own = [e for e in held if e["role"] == ROLE]
    base = {e["kernel"] for e in held if e["role"] != ROLE}
    kernels = [read_kernel(frozen.folder, name) for name in {e["kernel"] for e in held}]
    codes = {(str(k.manifest["variant"]), k.machine_code) for k in kernels}
    known = set() if forced else {variant for variant, code in codes if recording.code_hashes.get(variant, code) == code}
    times = {p: {n: t.median_us for n, t in row.items()} for p, row in recording.times.items()}
    picks = cover(times, base, {e["kernel"] for e in own if e["kernel"] not in base} | (set(variants) - known))
    wanted = {pick.name for pick in picks}
    superfluous = find_superfluous(times, base, {e["kernel"] for e in own} - base - wanted, wanted)
    return picks, [e for e in own if e["kernel"] in superfluous]


def promote_population(
    session: Session,
    frozen: Index,
    candidates: Sequence[Candidate],
    request: Request,
    recording: Recording,
    problems: Mapping[str, Problem],
    say: Callable[[str], None],
) -> list[Decision]:
    """Freeze what the population needs, and take out what it needs no more, in one change; nothing is written in a dry run."""
    bucket = make_fallback_bucket(session.loaded.op, session.target.real_arch)
    name = f"{name_bucket(bucket)} ({ROLE})"
    forced = bool(request.force_reason)
    by_name = {c.name: c for c in candidates}
    picks, dropped = find_needed(frozen, session.target.real_arch, recording, by_name, forced=forced)
    decisions, writing = [], Writing()
    refusals = {c.name: found[0] for c in candidates if (found := c.find_refusals(forced=forced))}
    if refused := [pick.name for pick in picks if pick.name in refusals]:
        decisions = [Decision(name, "refused", "", f"{n}: {refusals[n].name}: {refusals[n].detail}") for n in refused]
        for decision in decisions:
            say(f"{name}: {decision.outcome}: {decision.reason}")
        # They take no one's place: the others are picked without them.
        picks, dropped = find_needed(frozen, session.target.real_arch, recording, by_name.keys() - refusals.keys(), forced=forced)
    for pick in picks:
        candidate = by_name.get(pick.name)
        if candidate is None:
            decisions.append(Decision(name, "kept", pick.name, pick.describe(), pick.name))
        else:
            matches = [RecordedMatch(problems[p], recording.times[p]) for p, _ in pick.problems[:_MAX_CONTESTS]]
            place = Placement(bucket, ROLE, pick.describe(), None, request.force_reason)
            gather(session, frozen, place, candidate, matches, recording.conditions, writing)
            decisions.append(Decision(name, "promoted", str(candidate.manifest["kernel"]), pick.describe()))
        say(f"{name}: {decisions[-1].outcome}: {decisions[-1].kernel or pick.name}: {decisions[-1].reason}")
    for entry in dropped:
        decisions.append(Decision(name, "dropped", entry["kernel"], "no drawn problem needs it any more", entry["kernel"]))
        writing.messages.append(f"{entry['kernel']} leaves {name}: no drawn problem needs it any more")
        say(f"{name}: dropped: {entry['kernel']}")
    if not request.dry_run and (writing.rows or dropped):
        apply_writing(session, frozen, writing, drop=dropped)
    return decisions
