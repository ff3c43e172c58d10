"""Times recorded earlier on another GPU: published records, an op's goals (``compare`` without options), or drawn problems.

They may fill buckets that hold no measured entry. They challenge none: that takes contests in one process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.documents import parse_json
from contract.layout import hash_bytes
from harness.benchmark.session import Session
from harness.build.builder import BuildResult, build_op
from harness.build.revision import find_op_at
from harness.compare.drawn.problems import read_problem
from harness.compare.drawn.record import read_runs
from harness.errors import FrozenUseError, RecordError
from harness.records.database import Records
from harness.records.interchange import import_records
from harness.records.provenance import Commit
from harness.records.tables import read_samples
from harness.spec import Op, Problem
from harness.timing.timer import Mode


@dataclass(frozen=True)
class RecordedTime:
    """A contender's cold time on a problem: its median, its samples (none where the file keeps none), and the name of its record."""

    median_us: float
    record: str
    samples_us: tuple[float, ...] = ()


@dataclass(frozen=True)
class Recording:
    """What a file says: times by problem and contender, taken in the same rounds, and the conditions.

    ``code_hashes`` are those of the variants' machine code; where the file has none, they follow from ``revision``, unless the tree was
    ``dirty``. With ``all_timed`` every variant was to be timed on every problem: one that lacks some was cut short, and says nothing.
    """

    times: Mapping[str, Mapping[str, RecordedTime]]
    conditions: Mapping[str, str | float]
    revision: str
    code_hashes: Mapping[str, str] = field(default_factory=dict)
    all_timed: bool = False
    dirty: bool = False


@dataclass(frozen=True)
class RecordedMatch:
    """One problem of a recording, as evidence."""

    problem: Problem
    times: Mapping[str, RecordedTime]
    mode: Mode = Mode.COLD

    def find_fault(self, name: str) -> str:
        """Return "" where the contender was timed."""
        return "" if name in self.times else "not timed"

    def find_median_us(self, name: str) -> float | None:
        """Return a contender's median, None where it has none."""
        return self.times[name].median_us if name in self.times else None

    def find_record(self, name: str, records: Records) -> str:
        """Return the name of a contender's record."""
        return self.times[name].record

    def to_json(self, records: Records) -> dict[str, Any]:
        """Return plain values: all contenders' medians, and their samples where there are any."""
        names = list(self.times)
        return {
            "problem": self.problem.name,
            "mode": self.mode.value,
            "contenders": names,
            "records": [self.times[n].record for n in names],
            "median_us": [float(f"{self.times[n].median_us:.6g}") for n in names],
            "is_void": False,
            "times_us": [[float(f"{t:.6g}") for t in self.times[n].samples_us] for n in names],
            "clocks_mhz": [[] for _ in names],
        }


def read_recording(path: Path) -> Recording:
    """Read a file of goals or of records; raises :class:`FrozenUseError` where it holds no times of a GPU."""
    try:
        content = path.read_bytes()
        name = f"{path.name} ({hash_bytes(content)[:16]})"
        document = parse_json(content, strict=False) if path.suffix == ".json" else None
        if isinstance(document, dict) and "timings" in document:
            return _read_goals(document, name)
    except FrozenUseError:
        raise
    except OSError as error:
        raise FrozenUseError(f"--recorded {path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FrozenUseError(
            f"--recorded {path}: is neither goals (compare --publish) nor records (records export): {type(error).__name__}: {error}"
        ) from error
    return _read_records(path, name)


def _read_goals(document: Mapping[str, Any], name: str) -> Recording:
    environment = document["environment"]
    if environment["device_kind"] != "cuda":
        raise FrozenUseError(f"{name} was recorded on the {environment['device_kind']} device: it has no times")
    times = {}
    for problem, contenders in document["timings"].items():
        passed = {n: f for n, f in contenders.items() if f["status"] == "passed" and f.get("mode") == "cold"}
        times[problem] = {n: RecordedTime(float(f["median_us"]), f"{name}: {problem}") for n, f in passed.items()}
    commit = Commit.read(str(document["commit"]))
    conditions = _describe(environment, commit.name, str(document["command"]), name)
    return Recording(times, conditions, commit.sha, dirty=commit.dirty)


def read_population(op: Op, path: Path) -> tuple[Recording, dict[str, Problem]]:
    """Read the times of drawn problems, and the problems by name, on which several kernels were timed.

    They are those of the newest run of ``compare --drawn --regret`` in a file, or of one that ``survey measure`` wrote. Raises
    :class:`FrozenUseError` where it holds neither, or is of another op.
    """
    try:
        content = path.read_bytes()
        document, name = parse_json(content), f"{path.name} ({hash_bytes(content)[:16]})"
        if isinstance(document, dict) and "facts" in document:
            return _read_survey(op, document, name)
        runs = read_runs(path)
    except OSError as error:
        raise FrozenUseError(f"--population {path}: cannot be read: {error.strerror}") from error
    except RecordError as error:
        raise FrozenUseError(f"--population {path}: {error}") from error
    except ValueError as error:
        raise FrozenUseError(f"--population {path} is not a record of drawn problems: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise FrozenUseError(f"--population {path}: cannot be read as times of a survey: {type(error).__name__}: {error}") from error
    run = max(runs, key=lambda r: r.started, default=None)
    if run is None or run.op != op.name:
        raise FrozenUseError(f"--population {path}: has no run of {op.name}{f', but of {run.op}' if run else ''}")
    rows = [row for row in run.rows if len(row.own_known) > 1]
    if not rows:
        how = f"`compare {op.name} --drawn N --regret` times them"
        raise FrozenUseError(f"--population {path}: no other kernel was timed beside the chosen one: {how}")
    times = {row.problem: {c.name: RecordedTime(c.interval[0], f"{name}: {row.problem}") for c in row.own_known} for row in rows}
    commit = Commit.read(run.commit)
    conditions = _describe(run.environment, commit.name, run.command, name)
    problems = {row.problem: read_problem(vars(row)) for row in rows}
    return Recording(times, conditions, commit.sha, run.code_hashes, dirty=commit.dirty), problems


def _read_survey(op: Op, document: Mapping[str, Any], name: str) -> tuple[Recording, dict[str, Problem]]:
    facts = document["facts"]
    if document["op"] != op.name:
        raise FrozenUseError(f"--population: {name} has times of {document['op']}, not of {op.name}")
    if not document.get("code_hashes"):
        how = f"`survey measure {op.name} --variant NAME` times them"
        raise FrozenUseError(f"--population: {name} has no times of variants beside the frozen kernels: {how}")
    problems, times = {}, {}
    for row in document["rows"]:
        problem = _find_problem(op, row)
        if problem is not None:
            problems[problem.name] = problem
            times[problem.name] = {n: RecordedTime(float(us), f"{name}: {problem.name}") for n, us in row["times_us"].items()}
    environment = {
        "device_name": facts["device"],
        "driver_version": facts["driver"],
        "toolchain": facts["toolchain"],
        "host": facts["host"],
    }
    commit = Commit(str(facts["commit"]), bool(facts["dirty"]))
    conditions = _describe(environment, commit.name, str(facts["command"]), name)
    return Recording(times, conditions, commit.sha, document["code_hashes"], dirty=commit.dirty), problems


def _find_problem(op: Op, row: Mapping[str, Any]) -> Problem | None:
    """Return a survey's problem; None for one whose dimensions are in another order, which have no row strides."""
    defaults = {a.name: a.default for a in op.attributes}
    attributes = {name: value for name, value in row["attributes"].items() if value != defaults[name]}
    packed = op.find_facts(Problem(row["sizes"], attributes)).strides
    padding: dict[str, int] = {}
    for tensor, stride in row.get("strides", {}).items():
        beside = packed[tensor]
        if not isinstance(stride, int) or not isinstance(beside, int):
            return None
        padding[tensor] = stride - beside
    return Problem(row["sizes"], attributes, padding, frozenset({"drawn"}))


def _read_records(path: Path, name: str) -> Recording:
    """Read the latest run that timed something."""
    records = Records("sqlite://")
    try:
        import_records(records, path)
        rows = [r for r in records.list_results(kind="bench") if r.status == "passed" and r.device_kind == "cuda"]
    finally:
        records.close()
    if not rows:
        raise FrozenUseError(f"{name} holds no times of a GPU")
    latest = max(r.run_id for r in rows)
    cold = [r for r in rows if r.run_id == latest and r.figures.get("mode") == "cold"]
    times: dict[str, dict[str, RecordedTime]] = {}
    for row in cold:
        samples = tuple(float(t) for t in read_samples(row))
        times.setdefault(row.problem, {})[row.variant] = RecordedTime(float(row.figures["median_us"]), row.uid, samples)
    run = rows[-1].run
    environment = {c: getattr(run.environment, c) for c in ("device_name", "driver_version", "toolchain", "host")}
    conditions = _describe(environment, Commit(run.commit, run.dirty).name, run.command, name)
    hashes = {r.variant: r.code_hash for r in cold if r.code_hash}
    return Recording(times, conditions, run.commit, hashes, all_timed=True, dirty=run.dirty)


def _describe(environment: Mapping[str, Any], commit: str, command: str, name: str) -> dict[str, str | float]:
    return {
        "device": environment["device_name"],
        "driver": environment["driver_version"],
        "toolchain": environment["toolchain"],
        "commit": commit,
        "host": environment["host"],
        "command": command,
        "recorded_in": name,
    }


def list_variants(op: Op, recording: Recording) -> list[str]:
    """Return the op's variants that a recording has times of, each once; contenders that are none of the op's are peers."""
    names = dict.fromkeys(name for contenders in recording.times.values() for name in contenders)
    kernels = {k.name for k in op.kernels}
    return [n for n in names if n.partition("/")[0] in kernels]


def find_untimed_code(session: Session, recording: Recording, builds: Sequence[BuildResult]) -> dict[str, str]:
    """Return by variant why its recorded times are not those of the build: "" where its machine code is the same."""
    hashes = dict(recording.code_hashes)
    unknown: dict[str, str] = {}
    missing = [b for b in builds if b.variant.name not in hashes and b.library is not None]
    if recording.dirty:
        why = f"it was timed with changes beyond commit {recording.revision[:12]}, and nothing says which machine code: time it again"
        unknown = {b.variant.name: why for b in missing}
    elif missing:
        loaded, _ = find_op_at(session.loaded.op.name, recording.revision)
        variants = [loaded.op.find_kernel(b.variant.kernel).bind(dict(b.variant.values)) for b in missing]
        then = build_op(loaded, variants, toolchain=session.toolchain, target=session.target, jobs=session.settings.jobs)
        hashes |= {b.variant.name: b.code_hash for b in then}
    other = f"the machine code that was timed at {recording.revision[:12]} differs: time it again"
    found = {b.variant.name: "" if hashes.get(b.variant.name) == b.code_hash else other for b in builds}
    return found | unknown
