"""One variant on one problem: the steps of the protocol, on normal inputs and a non-default, non-blocking stream.

1. ``result``       inputs up, outputs and workspace poisoned with NaN, run, compare with the float64 reference under the op's bound;
2. ``guards``       nothing else changed: guard bytes, row padding, inputs;
3. ``determinism``  the same inputs over another poison give the same bits (unless the kernel is declared otherwise);
4. ``stale``        fresh inputs in the same buffers give fresh results;
5. ``capture``      nothing runs while the launch is captured into a graph, which holds a kernel, and gives the same bits when replayed;
6. ``sanitizer``    (emulated device) again on exactly sized allocations, inputs read-only, under all checks of the sanitizer;
7. ``schedules``    (emulated device, if requested) the same bits under several orders of blocks and warps. A difference within the bound
                    is put down to atomics if the kernel uses any; a kernel declared non-deterministic need only stay within the bound;
8. ``sampled``      large problems are judged in part (:mod:`harness.verify.sampling`);
9. ``launches``     the smallest problem is launched up to thousands of times (:mod:`harness.verify.repeating`).

Other distributions run steps 1 and 2; problems of unlisted sizes run 1, 2, 6 and 7. On the emulated device one launch does for 1, 2 and 6
of a drawn problem: it is judged as it runs under the sanitizer, which knows what was written where.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from device.interface import Device, DeviceError, Graph, Stream
from harness.spec import Kernel, Launchable, Op, Problem
from harness.verify import repeating
from harness.verify.allocations import POISON_FINITE, POISON_NAN, Layout
from harness.verify.case import Case, plan_arguments
from harness.verify.compare import find_different_bits
from harness.verify.differences import classify_mismatch, describe_difference, describe_unwritten
from harness.verify.feasibility import NotJudgedError
from harness.verify.findings import FaultKind, ProblemResult, Status, Tally, classify_report
from harness.verify.launch_faults import LAUNCH_ERRORS, DeviceLostError, Launcher
from harness.verify.plan import Step
from harness.verify.reference import Expected, References
from harness.verify.sampling import SampledRun
from harness.verify.schedules import Schedule, count_atomics
from harness.verify.written import CHECK, count_written

_Outputs = dict[str, NDArray[Any]]
# cudaErrorStreamCaptureImplicit: the launch would have made the capturing stream wait for the default stream.
_CAPTURE_IMPLICIT = 906


@dataclass
class ProblemSession:
    """One variant on one problem."""

    device: Device
    op: Op
    kernel: Kernel
    launchable: Launchable
    references: References
    step: Step
    schedules: Sequence[Schedule] = ()
    tally: Tally = field(default_factory=Tally)
    device_lost: bool = False

    def __post_init__(self) -> None:
        self.launcher = Launcher(self.device, self.launchable, self.tally)

    @property
    def problem(self) -> Problem:
        """The problem."""
        return self.step.problem

    def run(self) -> ProblemResult:
        """Run the protocol. What is wrong with the variant is in the result; only faults of the op and of the host raise."""
        if self.step.large:
            return self._run_large()
        stream = self.device.create_stream(non_blocking=True)
        is_watched = self.step.is_drawn and self.device.observer is not None
        try:
            reason = self._run_watched(stream) if is_watched else ""
            if not is_watched or ((self.step.distributions or self.schedules) and not reason and not self.tally.faults):
                with Case(self.device, self.op, self.problem) as case:
                    reason = self._ask_support(case)
                    if not reason and not self.tally.faults:
                        self._run_guarded(case, stream, is_judged=is_watched)
                    if not reason and self.schedules and not self.tally.faults:
                        self._check_schedules(case, stream)
            if reason:
                return ProblemResult(self.problem.name, Status.UNSUPPORTED, self.step.hidden, reason)
            if self.device.observer is not None and not is_watched:
                self._run_sanitized(stream)
        except DeviceLostError as error:
            self._note_lost(error)
        self.tally.note_bias()
        return self.tally.finish(self.problem.name, hidden=self.step.hidden)

    def _note_lost(self, error: DeviceLostError) -> None:
        self.device_lost = True
        # An endless loop takes the device with it, and is the reason.
        if all(f.kind is not FaultKind.TIMEOUT for f in self.tally.faults):
            self.tally.add(FaultKind.LAUNCH_ERROR, "launch", f"{error}; the device is lost, and needs a new process")

    def _run_large(self) -> ProblemResult:
        """Judge a large problem in part; NOT_RUN with the reason where that cannot be done."""
        name, stream = self.problem.name, self.device.create_stream(non_blocking=True)
        try:
            if reason := self.launchable.supports(**plan_arguments(self.op, self.problem)):
                return ProblemResult(name, Status.UNSUPPORTED, self.step.hidden, reason, large=True)
            inputs = self.step.distributions[0] if self.step.distributions else "normal"
            run = SampledRun(self.device, self.op, self.problem, self.launchable, self.tally, stream, distribution=inputs)
            replace(run, whole=self.step.whole, references=self.references).run()
        except NotJudgedError as error:
            if not self.tally.faults:
                return ProblemResult(name, Status.NOT_RUN, self.step.hidden, f"not run: {error}", large=True)
        except LAUNCH_ERRORS as error:
            self._note_failure(error, CHECK)
        return self.tally.finish(name, hidden=self.step.hidden, large=True)

    def _note_failure(self, error: Exception, check: str) -> None:
        self.tally.add(FaultKind.LAUNCH_ERROR, check, str(error))
        try:
            self.launcher.require_device(str(error))
        except DeviceLostError as lost:
            self._note_lost(lost)

    def repeat(self, count: int) -> ProblemResult:
        """Launch the problem ``count`` times."""
        stream = self.device.create_stream(non_blocking=True)
        expected = self.references.get(self.problem, "normal", 0)
        try:
            # Without guards, which would be filled and read each time.
            with Case(self.device, self.op, self.problem, Layout.EXACT) as case:
                case.prepare(self.launchable)
                is_fixed = self.kernel.deterministic
                repeating.check_launches(self.device, case, self.launchable, stream, expected, count, self.tally, deterministic=is_fixed)
        except LAUNCH_ERRORS as error:
            self._note_failure(error, repeating.CHECK)
        return self.tally.finish(self.problem.name, hidden=self.step.hidden)

    def _ask_support(self, case: Case) -> str:
        try:
            reason = self.launchable.supports(**case.arguments)
            if not reason:
                case.prepare(self.launchable)
        except LAUNCH_ERRORS as error:
            self.tally.add(FaultKind.LAUNCH_ERROR, "supports", str(error))
            return ""
        return reason

    def _run_guarded(self, case: Case, stream: Stream, *, is_judged: bool) -> None:
        """Run the steps that need no sanitizer; ``is_judged`` says that normal inputs were judged under it."""
        first = None if is_judged else self._run_checked(case, stream, "normal", seed=0)
        if first is None and not is_judged:
            return
        if first is not None and not self.step.hidden:
            # Only a result that was right for its own inputs can be called stale when it comes again for others.
            earlier = None if self.tally.faults else first
            self._check_determinism(case, stream, first)
            fresh = self._run_checked(case, stream, "normal", seed=1, check="stale", earlier=earlier)
            if fresh is not None:
                self._check_capture(case, stream, fresh)
        if self.tally.faults:
            return
        for distribution in self.step.distributions:
            self._run_checked(case, stream, distribution, seed=0)

    def _run_checked(
        self, case: Case, stream: Stream, distribution: str, *, seed: int, check: str = "result", earlier: _Outputs | None = None
    ) -> _Outputs | None:
        """Upload, run, compare, look for damage. Returns the outputs, or None when the launch itself failed."""
        expected = self.references.get(self.problem, distribution, seed)
        case.upload(expected.inputs, POISON_NAN)
        if not self.launcher.launch(case, stream, check, distribution):
            return None
        outputs = case.read_outputs()
        self.tally.note_check(check)
        self._judge(case, outputs, expected, check, distribution, earlier)
        self.tally.note_check("guards")
        for damage in case.find_damage():
            self.tally.add(FaultKind.GUARD_OVERWRITTEN, "guards", damage.describe(), distribution)
        for damage in case.find_modified_inputs():
            self.tally.add(FaultKind.INPUT_MODIFIED, "guards", damage.describe(), distribution)
        return outputs

    def _judge(
        self, case: Case, outputs: _Outputs, expected: Expected, check: str, distribution: str, earlier: _Outputs | None = None
    ) -> None:
        unwritten = case.find_unwritten(outputs)
        for part in expected.parts:
            for name, actual in outputs.items():
                if name not in part.outputs:
                    continue
                result = part.compare(name, actual)
                self.tally.note_comparison(result, distribution)
                if not result.ok:
                    bad, blank = part.find_mismatches(name, actual), part.take(name, unwritten[name])
                    kind = classify_mismatch(
                        result, bad, blank, part.take(name, actual), None if earlier is None else part.take(name, earlier[name])
                    )
                    self.tally.add(kind, check, result.describe(name) + describe_unwritten(bad, blank), distribution)

    def _check_determinism(self, case: Case, stream: Stream, first: _Outputs) -> None:
        case.poison(POISON_FINITE)
        if not self.launcher.launch(case, stream, "determinism", "normal"):
            return
        self.tally.note_check("determinism")
        self._compare_bits(case, first, FaultKind.NONDETERMINISTIC, "determinism", "a second run on the same inputs gives other bits")

    def _check_schedules(self, case: Case, stream: Stream) -> None:
        observer = self.device.observer
        assert observer is not None
        self.tally.note_check("schedules")
        expected = self.references.get(self.problem, "normal", 0)
        case.upload(expected.inputs, POISON_NAN)
        first: _Outputs = {}
        for schedule in self.schedules:
            case.poison(POISON_NAN)
            # One of the runs is counted as well: whether the kernel uses atomics decides what a difference is called.
            with observer.use_options(schedule.options), observer.observe((), counters=not first):
                if not self.launcher.launch(case, stream, "schedules", "normal"):
                    return
            outputs = case.read_outputs()
            if not first:
                first = outputs
                num_atomics = sum(count_atomics(launch.counts) for launch in observer.take_counters())
                continue
            for name, values in outputs.items():
                differs = find_different_bits(values, first[name])
                if not differs.any():
                    continue
                comparison = expected.compare({name: values})[name]
                if comparison.ok and not self.kernel.deterministic:
                    continue
                what = f"schedule {schedule.describe()} gives other bits than schedule {self.schedules[0].describe()}"
                detail = describe_difference(what, name, first[name], values, differs)
                if not comparison.ok:
                    self.tally.add(FaultKind.SCHEDULE_DEPENDENT, "schedules", f"{detail}; {comparison.describe(name)}")
                elif num_atomics:
                    why = "within the bound, and the kernel uses atomics: what depends on their order is declared deterministic=False"
                    self.tally.add(FaultKind.ATOMICS_ORDER, "schedules", f"{detail}; {why}")
                else:
                    self.tally.add(FaultKind.SCHEDULE_DEPENDENT, "schedules", f"{detail}; the kernel uses no atomics")

    def _compare_bits(self, case: Case, before: _Outputs, kind: FaultKind, check: str, what: str) -> None:
        after = case.read_outputs()
        unwritten = case.find_unwritten(after)
        for name, values in after.items():
            differs = find_different_bits(values, before[name])
            if not differs.any() or (not self.kernel.deterministic and not (differs & unwritten[name]).any()):
                continue
            detail = describe_difference(what, name, before[name], values, differs)
            lost = bool((differs & unwritten[name]).any())
            self.tally.add(FaultKind.NOT_WRITTEN if lost else kind, check, detail + describe_unwritten(differs, unwritten[name]))

    def _check_capture(self, case: Case, stream: Stream, expected: _Outputs) -> None:
        """Capture the launch; ``expected`` are the bits for the inputs that are in place."""
        case.poison(POISON_NAN)
        self.tally.note_check("capture")
        graph = self._capture(case, stream)
        if graph is None:
            return
        touched = case.find_touched()
        if touched:
            detail = f"while its launch was being captured, {', '.join(touched)} changed: work ran outside the stream that launch was given"
            self.tally.add(FaultKind.WRONG_STREAM, "capture", detail)
        elif not graph.kernel_nodes:
            detail = f"the captured graph holds {graph.num_nodes} nodes and no kernel: launch put its work outside the stream it was given"
            self.tally.add(FaultKind.WRONG_STREAM, "capture", detail)
        else:
            self._check_replay(case, stream, graph, expected)

    def _capture(self, case: Case, stream: Stream) -> Graph | None:
        try:
            with self.device.capture(stream) as graphs:
                case.launch(self.launchable, stream)
        except LAUNCH_ERRORS as error:
            code = getattr(error, "code", 0) or self.device.take_last_error()[0]
            implicit = code == _CAPTURE_IMPLICIT or str(_CAPTURE_IMPLICIT) in str(error)
            kind = FaultKind.WRONG_STREAM if implicit else FaultKind.NOT_CAPTURABLE
            self.tally.add(kind, "capture", f"the launch cannot be captured into a graph: {error}")
            self.launcher.require_device(str(error))
            return None
        self.device.synchronize()
        return graphs[0]

    def _check_replay(self, case: Case, stream: Stream, graph: Graph, expected: _Outputs) -> None:
        case.poison(POISON_FINITE)
        try:
            graph.launch(stream)
            stream.synchronize()
        except DeviceError as error:
            self.tally.add(FaultKind.LAUNCH_ERROR, "capture", f"replay of the captured graph failed: {error}")
            self.launcher.require_device(str(error))
            return
        self.tally.num_launches += 1
        self._compare_bits(case, expected, FaultKind.REPLAY_DIFFERS, "capture", "replay of the captured graph gives other bits")

    def _run_sanitized(self, stream: Stream) -> None:
        expected = self.references.get(self.problem, "normal", 0)
        with Case(self.device, self.op, self.problem, Layout.EXACT) as case:
            self._watch(case, stream, expected)

    def _run_watched(self, stream: Stream) -> str:
        """Judge a launch under the sanitizer, to which writes beside the elements show as well. Returns why it is not served, or ""."""
        observer = self.device.observer
        assert observer is not None
        with Case(self.device, self.op, self.problem, Layout.EXACT) as case:
            reason = self._ask_support(case)
            if reason or self.tally.faults:
                return reason
            expected = self.references.get(self.problem, "normal", 0)
            if not self._watch(case, stream, expected, is_poisoned=True):
                return ""
            self.tally.note_check("result")
            self._judge(case, case.read_outputs(), expected, "result", "normal")
            self.tally.note_check("guards")
            for name in case.outputs:
                count_written(observer, case.arguments[name], name, self.tally, "guards")
        return ""

    def _watch(self, case: Case, stream: Stream, expected: Expected, *, is_poisoned: bool = False) -> bool:
        """Launch under all checks of the sanitizer; return whether it ran to its end. Poison counts as nothing that was written."""
        observer = self.device.observer
        assert observer is not None
        with observer.observe():
            observer.take_reports()
            try:
                case.prepare(self.launchable)
                case.upload(expected.inputs)
                if is_poisoned:
                    case.fill_outputs(POISON_NAN)
                    case.forget_written()
                with observer.use_options({"read_only": ",".join(map(str, case.input_addresses))}):
                    return self.launcher.launch(case, stream, "sanitizer", "normal")
            finally:
                reports = observer.take_reports()
                self.tally.note_check("sanitizer")
                for report in reports:
                    if report.severity == "error":
                        times = f" ({report.count} times)" if report.count > 1 else ""
                        name = case.find_input(report.address) if report.kind == "read_only_write" else ""
                        what = f"a store to input {name}, which may be changed by no kernel, not even for a while: " if name else ""
                        self.tally.add(classify_report(report), "sanitizer", what + report.text + times)
