"""Measurements on drawn problems: rows as they come, runs that merge, and the result of a group. Plain values, no device.

A row's *ratio* is the time of the fastest of its group's libraries over the time of what users get; more than 1 is faster than all of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from contract.files import write_atomically
from device.settings import find_project_root
from harness.errors import RecordError
from harness.spec import PEER_ERROR
from harness.timing.copies import Copies
from harness.timing.stats import TOO_SLOW

SCHEMA = 1
FILE = "drawn.json"
FROZEN, OWN, VARIANT, PEER = "frozen", "own", "variant", "peer"


@dataclass(frozen=True)
class Contender:
    """One that was timed, or would have been: cold median with its 95 % interval in microseconds, and its largest error over the bound.

    ``role`` is ``frozen`` (a kernel of the frozen set), ``own`` (the op's own choice), ``variant`` or ``peer``, which may be off by
    ``max_error`` times the bound.
    """

    name: str
    role: str
    status: str
    us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    error: float | None = None
    reason: str = ""
    max_error: float = PEER_ERROR

    @property
    def counts(self) -> bool:
        """Whether its time is one of the op: it was timed, and its output is right, or that of a library within its ``max_error``."""
        if self.us is None:
            return False
        return self.status == "passed" or (self.role == PEER and self.error is not None and self.error <= self.max_error)

    @property
    def is_behind(self) -> bool:
        """Whether it was timed, and is too far behind to be judged."""
        return self.us is not None and self.status == TOO_SLOW

    @property
    def interval(self) -> tuple[float, float, float]:
        """The median with its interval."""
        assert self.us is not None
        return self.us, self.low_us or self.us, self.high_us or self.us


@dataclass(frozen=True)
class DrawnRow:
    """One drawn problem. ``judged`` is the contender that users get, ``judged_as`` what that is; ``own`` what the op itself chooses.

    ``how`` is the step of the framework's decision; ``reason`` says why there is no ratio.
    """

    group: str
    problem: str
    sizes: Mapping[str, int]
    attributes: Mapping[str, Any]
    padding: Mapping[str, int | Sequence[int]]
    judged: str
    judged_as: str
    own: str
    how: str = ""
    contenders: tuple[Contender, ...] = ()
    scalars: Mapping[str, float] = field(default_factory=dict)
    orders: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def find(self, name: str) -> Contender | None:
        """Return a contender by name."""
        return next((c for c in self.contenders if c.name == name), None)

    @property
    def mine(self) -> Contender | None:
        """What users get, None where it was not timed or its output is wrong."""
        found = self.find(self.judged)
        return found if found is not None and found.counts else None

    @property
    def peer(self) -> Contender | None:
        """The fastest library."""
        return min((c for c in self.contenders if c.role == PEER and c.counts), key=lambda c: c.interval, default=None)

    @property
    def own_timed(self) -> tuple[Contender, ...]:
        """The op's own that were timed and are right."""
        return tuple(c for c in self.contenders if c.role != PEER and c.counts)

    @property
    def own_known(self) -> tuple[Contender, ...]:
        """These, and the op's own that were too far behind to be judged."""
        return tuple(c for c in self.contenders if c.role != PEER and (c.counts or c.is_behind))

    @property
    def best(self) -> Contender | None:
        """The fastest of the op's own."""
        return min(self.own_timed, key=lambda c: c.interval, default=None)

    @property
    def ratio(self) -> float | None:
        """The fastest library's time over that of what users get."""
        mine, peer = self.mine, self.peer
        return None if mine is None or peer is None else peer.interval[0] / mine.interval[0]

    @property
    def regret(self) -> float | None:
        """What it takes longer than the fastest of the op's own that were timed, as a share; None where no other was."""
        mine, best = self.mine, self.best
        return None if mine is None or best is None or len(self.own_timed) < 2 else mine.interval[0] / best.interval[0] - 1.0

    @property
    def reason(self) -> str:
        """Why there is no ratio, or what to know of it."""
        if self.mine is None:
            found = self.find(self.judged)
            return "not timed" if found is None else f"{found.name}: {found.reason or found.status}"
        peer = self.peer
        if peer is None:
            return "no library was timed"
        return "" if peer.status == "passed" else f"{peer.name} is off by {peer.error:.2g} of the bound"

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        plain = {k: dict(v) if isinstance(v, Mapping) else v for k, v in vars(self).items()}
        found = {name: getattr(self, name) for name in ("ratio", "regret")} | {"peer": self.peer.name if self.peer else ""}
        return plain | {"contenders": [asdict(c) for c in self.contenders]} | found

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> DrawnRow:
        """Return what :meth:`to_json` wrote."""
        kept = {k: v for k, v in row.items() if k not in ("ratio", "regret", "peer", "contenders")}
        return cls(**kept, contenders=tuple(Contender(**c) for c in row["contenders"]))


@dataclass(frozen=True)
class DrawnRun:
    """One run: its seed, how many problems were asked for, in what circumstances, and of which frozen set (the hash of its index).

    ``arch`` is the architecture that kernels were chosen for.

    ``seed_note`` says what the seed was used for before, "" where it is fresh. ``code_hashes`` are those of the machine code of the
    variants that were built for it. ``libraries`` has what was found out about libraries that calls may get, by the peer's name.
    ``copies`` are times of copies on the same GPU.
    """

    op: str
    seed: int
    asked: int
    started: str
    command: str
    commit: str
    arch: str
    index: str
    environment: Mapping[str, Any]
    seed_note: str = ""
    left_out: tuple[str, ...] = ()
    rows: tuple[DrawnRow, ...] = ()
    code_hashes: Mapping[str, str] = field(default_factory=dict)
    libraries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    copies: Copies = ()

    @property
    def where(self) -> str:
        """On what and when it was measured."""
        e = self.environment
        return f"{e['device_name']}, driver {e['driver_version']}, {e['toolchain']}, {self.commit}, {self.started[:16]} UTC"

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return vars(self) | {
            "environment": dict(self.environment),
            "left_out": list(self.left_out),
            "code_hashes": dict(self.code_hashes),
            "libraries": {name: dict(facts) for name, facts in self.libraries.items()},
            "copies": [list(pair) for pair in self.copies],
            "rows": [r.to_json() for r in self.rows],
        }

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> DrawnRun:
        """Return what :meth:`to_json` wrote."""
        kept = {k: v for k, v in row.items() if k not in ("rows", "left_out", "copies")}
        copies = tuple((int(size), float(us)) for size, us in row.get("copies", ()))
        return cls(**kept, left_out=tuple(row["left_out"]), copies=copies, rows=tuple(DrawnRow.read(r) for r in row["rows"]))


@dataclass(frozen=True)
class GroupResult:
    """What the rows of a group come to; figures are None where nothing was measured."""

    title: str
    rows: tuple[DrawnRow, ...] = field(repr=False)

    @property
    def measured(self) -> list[tuple[float, DrawnRow]]:
        """The rows that have a ratio, worst first."""
        return sorted(((r.ratio, r) for r in self.rows if r.ratio is not None), key=lambda pair: pair[0])

    @property
    def geomean(self) -> float | None:
        """Geometric mean of the ratios."""
        found = self.measured
        return math.exp(sum(math.log(ratio) for ratio, _ in found) / len(found)) if found else None

    @property
    def share_level(self) -> float | None:
        """The share of problems with a ratio of at least 1."""
        found = self.measured
        return sum(ratio >= 1.0 for ratio, _ in found) / len(found) if found else None

    @property
    def regret(self) -> float | None:
        """Mean regret."""
        found = [r.regret for r in self.rows if r.regret is not None]
        return sum(found) / len(found) if found else None


def group_rows(rows: Iterable[DrawnRow], titles: Mapping[str, str]) -> list[GroupResult]:
    """Return a result per group in the order of ``titles`` (by group name), and last all of them together."""
    listed = list(rows)
    names = [n for n in titles if any(r.group == n for r in listed)]
    names += sorted({r.group for r in listed} - set(names))
    found = [GroupResult(titles.get(n, n), tuple(r for r in listed if r.group == n)) for n in names]
    return [*found, GroupResult("all", tuple(listed))]


def find_record(op: str, *, published: bool = False) -> Path:
    """Return where an op's record lies: what was measured here, or, where there is nothing or ``published`` is asked for, in profiles/."""
    here = find_project_root() / ".aicf" / "drawn" / op / FILE
    return here if here.is_file() and not published else find_project_root() / "profiles" / op / FILE


def read_runs(path: Path) -> list[DrawnRun]:
    """Return the runs of a record, oldest first, none where there is no file; raises :class:`RecordError` where it cannot be read."""
    if not path.is_file():
        return []
    try:
        document = json.loads(path.read_text())
        if document["schema"] != SCHEMA:
            raise RecordError(f"{path}: schema {document['schema']} is not {SCHEMA}: it was written by another version")
        return [DrawnRun.read(row) for row in document["runs"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path} is not a record of drawn problems: {type(error).__name__}: {error}") from error


def write_runs(path: Path, op: str, runs: Sequence[DrawnRun]) -> None:
    """Write a record, whole or not at all."""
    document = {"schema": SCHEMA, "op": op, "runs": [r.to_json() for r in runs]}
    write_atomically(path, json.dumps(_round(document), indent=1, allow_nan=False) + "\n")


def _round(value: Any) -> Any:
    """Return plain values of six digits; what JSON lacks becomes null."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {k: _round(v) for k, v in value.items()}
    return [_round(v) for v in value] if isinstance(value, list | tuple) else value


def put_run(runs: Sequence[DrawnRun], run: DrawnRun) -> list[DrawnRun]:
    """Return the runs with this one, in place of its own earlier state."""
    return [*(r for r in runs if (r.started, r.seed) != (run.started, run.seed)), run]


def merge_runs(runs: Sequence[DrawnRun]) -> tuple[list[DrawnRun], list[DrawnRow]]:
    """Return the runs that stand together with the newest one, and their rows: of the same frozen set on the same kind of GPU.

    Of a problem that was timed more than once the newest row counts.
    """
    if not runs:
        return [], []
    last = max(runs, key=lambda r: r.started)
    alike = [r for r in runs if (r.index, r.environment["device_name"]) == (last.index, last.environment["device_name"])]
    rows = {row.problem: row for r in sorted(alike, key=lambda r: r.started) for row in r.rows}
    return alike, list(rows.values())


def add_row(run: DrawnRun, row: DrawnRow) -> DrawnRun:
    """Return the run with one more row."""
    return replace(run, rows=(*run.rows, row))
