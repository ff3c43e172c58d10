"""The findings of verify about a variant: faults by stable keyword, per problem and in total. Plain data, printable and JSON-able."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from device.observer import Report
from harness.verify.bias import Bias, pool
from harness.verify.compare import Comparison


class FaultKind(StrEnum):
    """The keywords of what can be wrong, most telling first: the first one that a variant shows names the reason it is refused for."""

    RACE = "race"
    OUT_OF_BOUNDS_WRITE = "out_of_bounds_write"
    OUT_OF_BOUNDS_READ = "out_of_bounds_read"
    USE_AFTER_FREE = "use_after_free"
    MISALIGNED = "misaligned"
    UNINITIALIZED_READ = "uninitialized_read"
    DIVERGENT_BARRIER = "divergent_barrier"
    SYNC_MASK = "sync_mask"
    DEADLOCK = "deadlock"
    TRAP = "trap"
    SANITIZER = "sanitizer"
    WRONG_STREAM = "wrong_stream"
    NOT_CAPTURABLE = "not_capturable"
    INPUT_MODIFIED = "input_modified"
    INPUT_WRITTEN = "input_written"
    GUARD_OVERWRITTEN = "guard_overwritten"
    LAUNCH_ERROR = "launch_error"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    BUILD_ERROR = "build_error"
    STALE_OUTPUT = "stale_output"
    NOT_WRITTEN = "not_written"
    NONDETERMINISTIC = "nondeterministic"
    SCHEDULE_DEPENDENT = "schedule_dependent"
    ATOMICS_ORDER = "atomics_order"
    NAN = "nan"
    MISMATCH = "mismatch"
    REPLAY_DIFFERS = "replay_differs"
    LAUNCH_DEPENDENT = "launch_dependent"
    BIASED = "biased"
    SUPPORTS_NOTHING = "supports_nothing"
    TOLERANCE_ACCEPTS_ZEROS = "tolerance_accepts_zeros"
    TOLERANCE_INVALID = "tolerance_invalid"


_RANK = {kind: rank for rank, kind in enumerate(FaultKind)}

# Words of the emulated device's sanitizer that verify names otherwise; a word that is itself a keyword stands for itself.
_REPORT_KINDS: Mapping[str, FaultKind] = {
    "shared_race": FaultKind.RACE,
    "async_copy_in_flight": FaultKind.RACE,
    "misaligned_access": FaultKind.MISALIGNED,
    "barrier_count": FaultKind.DIVERGENT_BARRIER,
    "invalid_barrier": FaultKind.DIVERGENT_BARRIER,
    "sync_mask_missing_lanes": FaultKind.SYNC_MASK,
    "sync_mask_excludes_caller": FaultKind.SYNC_MASK,
    "shuffle_inactive_lane": FaultKind.SYNC_MASK,
    "assertion_failed": FaultKind.TRAP,
    "instruction_limit": FaultKind.TIMEOUT,
    # verify marks nothing read-only but inputs.
    "read_only_write": FaultKind.INPUT_WRITTEN,
    "endless_loop": FaultKind.TIMEOUT,
}


def classify_report(report: Report) -> FaultKind:
    """Return the keyword for a sanitizer report; a kind that is not known here is ``sanitizer``, with the report's text as detail."""
    if report.kind in _REPORT_KINDS:
        return _REPORT_KINDS[report.kind]
    return FaultKind(report.kind) if report.kind in _RANK else FaultKind.SANITIZER


class Status(StrEnum):
    """How a variant did on a problem, or over all."""

    PASSED = "passed"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"
    NOT_RUN = "not_run"


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong. ``check`` is the step of the protocol that found it, ``inputs`` the distribution it ran on."""

    kind: FaultKind
    check: str
    detail: str
    inputs: str = "normal"

    def describe(self) -> str:
        """Return one line (or several, for a sanitizer report)."""
        return f"{self.kind} ({self.check}, {self.inputs} inputs): {self.detail}"


def sort_faults(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Return the faults without repetitions, most telling first, otherwise in the order they were found."""
    return tuple(sorted(dict.fromkeys(faults), key=lambda f: _RANK[f.kind]))


@dataclass(frozen=True)
class ProblemResult:
    """How a variant did on one problem.

    ``max_abs_error``, ``max_error_ratio`` (of the allowed bound) and ``max_ulp`` are the worst over all comparisons made, on outputs
    whose reference is finite; ``bias`` is the mean signed error on normal inputs. ``hidden`` marks a problem that the op does not list,
    ``large`` one that was judged in part. ``reason`` says why it was not served or not run.
    """

    problem: str
    status: Status
    hidden: bool = False
    reason: str = ""
    faults: tuple[Fault, ...] = ()
    checks: tuple[str, ...] = ()
    max_abs_error: float = 0.0
    max_error_ratio: float = 0.0
    max_ulp: float = 0.0
    num_launches: int = 0
    bias: Bias = field(default_factory=Bias)
    large: bool = False


@dataclass(frozen=True)
class VerifyResult:
    """How a variant did over all problems.

    ``complete`` is False when only some of the problems were asked for. ``proof`` says what they were: ``listed`` in op.py (with some
    hidden ones), or ``drawn`` as well.
    """

    op: str
    variant: str
    problems: tuple[ProblemResult, ...]
    faults: tuple[Fault, ...] = ()
    complete: bool = True
    device_lost: bool = False
    seconds: float = 0.0
    proof: str = "listed"

    @property
    def all_faults(self) -> tuple[Fault, ...]:
        """Faults of the variant as a whole and of every problem, most telling first."""
        return sort_faults((*self.faults, *(f for p in self.problems for f in p.faults)))

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong and at least one problem was verified."""
        return not self.all_faults and any(p.status is Status.PASSED for p in self.problems)

    @property
    def reason(self) -> str:
        """The keyword of the most telling fault, or ""."""
        faults = self.all_faults
        return faults[0].kind.value if faults else ""

    @property
    def num_passed(self) -> int:
        """Problems that passed."""
        return sum(p.status is Status.PASSED for p in self.problems)

    @property
    def max_error_ratio(self) -> float:
        """Worst error over the bound, over all problems."""
        return max((p.max_error_ratio for p in self.problems), default=0.0)

    @property
    def max_ulp(self) -> float:
        """Worst error in units of the last place, over all problems."""
        return max((p.max_ulp for p in self.problems), default=0.0)

    @property
    def bias(self) -> Bias:
        """Mean signed error over the bound, over all rows of all problems on normal inputs."""
        return pool(p.bias for p in self.problems)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self) | {"ok": self.ok, "reason": self.reason, "bias": asdict(self.bias)}


@dataclass
class Tally:
    """Collects one problem's faults and figures while it is being verified."""

    faults: list[Fault] = field(default_factory=list)
    checks: dict[str, None] = field(default_factory=dict)
    max_abs_error: float = 0.0
    max_error_ratio: float = 0.0
    max_ulp: float = 0.0
    num_launches: int = 0
    biases: list[Bias] = field(default_factory=list)

    def add(self, kind: FaultKind, check: str, detail: str, inputs: str = "normal") -> None:
        """Note a fault."""
        self.faults.append(Fault(kind, check, detail, inputs))

    def note_check(self, name: str) -> None:
        """Note that a check was made."""
        self.checks[name] = None

    def note_comparison(self, comparison: Comparison, inputs: str = "normal") -> None:
        """Keep the worst figures, and the bias where values are drawn independently."""
        self.max_abs_error = max(self.max_abs_error, comparison.max_abs_error)
        self.max_error_ratio = max(self.max_error_ratio, comparison.max_error_ratio)
        self.max_ulp = max(self.max_ulp, comparison.max_ulp)
        if inputs == "normal":
            self.biases.append(comparison.bias)

    def absorb(self, other: Tally) -> None:
        """Take over what another one collected."""
        self.faults += other.faults
        self.checks |= other.checks
        self.max_abs_error = max(self.max_abs_error, other.max_abs_error)
        self.max_error_ratio = max(self.max_error_ratio, other.max_error_ratio)
        self.max_ulp = max(self.max_ulp, other.max_ulp)
        self.num_launches += other.num_launches
        self.biases += other.biases

    def note_bias(self) -> None:
        """Note a fault where the errors so far go one way."""
        if not self.faults and (detail := pool(self.biases).find_fault()):
            self.add(FaultKind.BIASED, "bias", detail)

    def finish(self, problem: str, *, hidden: bool, large: bool = False) -> ProblemResult:
        """Return the result."""
        return ProblemResult(
            problem=problem,
            status=Status.FAILED if self.faults else Status.PASSED,
            hidden=hidden,
            faults=sort_faults(self.faults),
            checks=tuple(self.checks),
            max_abs_error=self.max_abs_error,
            max_error_ratio=self.max_error_ratio,
            max_ulp=self.max_ulp,
            num_launches=self.num_launches,
            bias=pool(self.biases),
            large=large,
        )
