"""The judge: verifies a variant on its problems, or says what is wrong with it.

The protocol on one problem, on normal inputs, all on a non-default, non-blocking stream:

1. ``result``       inputs up, outputs and workspace poisoned with NaN, run, compare with the float64 reference under the op's bound;
2. ``guards``       nothing beside the outputs changed: guard bytes, row padding, inputs;
3. ``determinism``  the same inputs over another poison give the same bits (unless the kernel is declared otherwise);
4. ``stale``        fresh inputs in the same buffers give fresh results;
5. ``capture``      the launch is captured into a graph: nothing may run while capturing, the graph must hold a kernel, and its replay
                    gives the same bits. Work on another stream, and calls that a graph cannot hold, show here on every device;
6. ``sanitizer``    on an emulated device the launch is repeated on exactly sized allocations with memcheck, initcheck, synccheck,
                    racecheck and streamcheck on;
7. ``schedules``    where asked for, on an emulated device: the launch is repeated under several orders of blocks and warps, all of which
                    must give the same bits. Where they differ within the bound and the kernel uses atomics, that is said to be their
                    order; a kernel that is declared otherwise need only stay within the bound.

Other distributions run steps 1 and 2; problems of unlisted sizes run 1, 2, 6 and 7. Inputs are marked read-only in step 6, so that a store
to one is found even where it is undone. Where drawn problems are asked for (:class:`harness.verify.plan.Effort`):

8. ``sampled``      large problems are judged in part, on the emulated device by some of their blocks (:mod:`harness.verify.sampling`);
9. ``launches``     the smallest problem is launched thousands of times (:mod:`harness.verify.repeating`).

Of all comparisons on normal inputs together, the mean signed error must look like that of roundings (:mod:`harness.verify.bias`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from device.interface import Device, DeviceError, Graph, Stream
from harness.nvtx_ranges import mark_range
from harness.spec import Kernel, Launchable, Op, Problem, Variant
from harness.verify.bias import pool
from harness.verify.differences import classify_mismatch, describe_difference, describe_unwritten, find_different_bits
from harness.verify.findings import Fault, FaultKind, ProblemResult, Status, Tally, VerifyResult, classify_report
from harness.verify.loops import limit_loops
from harness.verify.plan import Effort, Pool, Step, find_size, make_plan, make_pools
from harness.verify.reference import Expected, References, check_tolerance
from harness.verify.repeating import CHECK as LAUNCHES
from harness.verify.repeating import check_launches
from harness.verify.runner import POISON_FINITE, POISON_NAN, Case, Layout, plan_arguments
from harness.verify.sampling import CHECK as SAMPLED
from harness.verify.sampling import NotJudgedError, SampledRun
from harness.verify.schedules import Schedule, count_atomics, make_schedules

# Raised by one when the protocol or its thresholds change, so that earlier verdicts are not taken for current ones.
VERIFY_VERSION = 3

_Outputs = dict[str, NDArray[Any]]
# What a binding may raise for a launch: RuntimeError by contract (DeviceError is one), the others for arguments it refuses.
_LAUNCH_ERRORS = (RuntimeError, TypeError, ValueError)
# cudaErrorStreamCaptureImplicit: the launch would have made the capturing stream wait for the default stream.
_CAPTURE_IMPLICIT = 906


class DeviceLostError(RuntimeError):
    """The device no longer answers (a sticky CUDA error): only a new process gets it back."""


class Verifier:
    """Verifies variants of one op on one device; references are shared between the variants."""

    def __init__(self, op: Op, device: Device, effort: Effort | None = None, problem_names: Sequence[str] = ()) -> None:
        self.op = op
        self.device = device
        self.effort = effort = effort or Effort()
        self.problem_names = tuple(problem_names)
        self.steps = make_plan(op, effort, problem_names)
        self._plans: dict[tuple[str, ...], tuple[list[Step], tuple[Pool, ...]]] = {}
        self.schedules = make_schedules(effort.schedules) if device.observer is not None else ()
        self.complete = not problem_names
        self._references = References(op)

    def check_op(self) -> tuple[Fault, ...]:
        """Return what is wrong with the op's own tolerance, on every problem of the plan."""
        return tuple(f for s in self.steps for f in check_tolerance(self.op, s.problem, self._references.get(s.problem)))

    def verify(self, variant: Variant, launchable: Launchable, on_step: Callable[[ProblemResult], None] | None = None) -> VerifyResult:
        """Run the protocol on every problem of the plan. Faults are results; only faults of the op itself and of the host raise."""
        started = time.perf_counter()
        kernel = self.op.find_kernel(variant.kernel)
        results: list[ProblemResult] = []
        planned, pools = self._find_plan(variant)
        steps = [*planned, *(s for each in pools for s in self._select_served(each, launchable))]
        lost = ""
        for step in steps:
            if lost:
                reason = f"not run: the device was lost on problem {lost}"
                results.append(ProblemResult(step.problem.name, Status.NOT_RUN, step.hidden, reason))
                continue
            session = self._make_session(kernel, launchable, step)
            marked = mark_range(self.op.name, variant.name, step.problem.name, "verify")
            with marked, limit_loops(self.device, self.op, step.problem):
                results.append(session.run())
            lost = step.problem.name if session.device_lost else ""
            if on_step is not None:
                on_step(results[-1])
        if not lost and self.effort.num_launches and self.complete:
            lost = self._repeat_launches(kernel, launchable, steps, results)
        faults = []
        if all(r.status is Status.UNSUPPORTED for r in results):
            faults.append(Fault(FaultKind.SUPPORTS_NOTHING, "supports", f"no problem is served; the last reason was: {results[-1].reason}"))
        elif not any(r.faults for r in results) and (detail := pool(r.bias for r in results).find_fault()):
            faults.append(Fault(FaultKind.BIASED, "bias", detail))
        return VerifyResult(
            op=self.op.name,
            variant=variant.name,
            problems=tuple(results),
            faults=tuple(faults),
            complete=self.complete,
            device_lost=bool(lost),
            seconds=time.perf_counter() - started,
            proof=self.effort.proof,
        )

    def _find_plan(self, variant: Variant) -> tuple[list[Step], tuple[Pool, ...]]:
        """Return the steps that a variant goes through, and the pools that more are taken from, of its chain where the op has any."""
        if self.problem_names:
            return self.steps, ()
        op = self.op.narrow(variant)
        key = tuple(p.name for p in op.problems)
        if key not in self._plans:
            self._plans[key] = (self.steps if op is self.op else make_plan(op, self.effort)), make_pools(op, self.effort)
        return self._plans[key]

    def _make_session(self, kernel: Kernel, launchable: Launchable, step: Step) -> _Session:
        return _Session(self.device, self.op, kernel, launchable, self._references, step, self.schedules)

    def _select_served(self, candidates: Pool, launchable: Launchable) -> list[Step]:
        """Return the pool's steps up to the last that counts; small ones among them that are not served are reported as such."""
        chosen, served = [], 0
        for step in candidates.steps:
            if served == candidates.count:
                break
            is_served = True
            # What a binding raises here, it raises when the step is run, and is a fault there.
            with contextlib.suppress(*_LAUNCH_ERRORS):
                is_served = not launchable.supports(**plan_arguments(self.op, step.problem))
            served += is_served
            if is_served or not step.large:
                chosen.append(step)
        return chosen

    def _repeat_launches(self, kernel: Kernel, launchable: Launchable, steps: Sequence[Step], results: list[ProblemResult]) -> str:
        """Launch the smallest problem that passed many times, and put what is found to its result.

        Returns the problem's name if that lost the device.
        """
        passed = [i for i, r in enumerate(results) if r.status is Status.PASSED and not r.large]
        if not passed:
            return ""
        index = min(passed, key=lambda i: find_size(self.op, steps[i].problem))
        session = self._make_session(kernel, launchable, steps[index])
        found = session.repeat(self.effort.num_launches)
        before = results[index]
        results[index] = replace(
            before,
            status=found.status,
            faults=found.faults,
            checks=(*before.checks, *found.checks),
            num_launches=before.num_launches + found.num_launches,
        )
        return before.problem if session.device_lost else ""


class _Session:
    """One variant on one problem."""

    def __init__(
        self,
        device: Device,
        op: Op,
        kernel: Kernel,
        launchable: Launchable,
        references: References,
        step: Step,
        schedules: Sequence[Schedule] = (),
    ) -> None:
        self.device = device
        self.op = op
        self.kernel = kernel
        self.launchable = launchable
        self.references = references
        self.step = step
        self.schedules = schedules
        self.tally = Tally()
        self.device_lost = False

    @property
    def problem(self) -> Problem:
        return self.step.problem

    def run(self) -> ProblemResult:
        if self.step.large:
            return self._run_large()
        stream = self.device.create_stream(non_blocking=True)
        try:
            with Case(self.device, self.op, self.problem) as case:
                reason = self._ask_support(case)
                if reason:
                    return ProblemResult(self.problem.name, Status.UNSUPPORTED, self.step.hidden, reason)
                if not self.tally.faults:
                    self._run_guarded(case, stream)
                if self.schedules and not self.tally.faults:
                    self._check_schedules(case, stream)
            if self.device.observer is not None:
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
            reason = self.launchable.supports(**plan_arguments(self.op, self.problem))
            if reason:
                return ProblemResult(name, Status.UNSUPPORTED, self.step.hidden, reason, large=True)
            SampledRun(self.device, self.op, self.problem, self.launchable, self.tally, stream).run()
        except NotJudgedError as error:
            if not self.tally.faults:
                return ProblemResult(name, Status.NOT_RUN, self.step.hidden, f"not run: {error}", large=True)
        except _LAUNCH_ERRORS as error:
            self._note_failure(error, SAMPLED)
        return self.tally.finish(name, hidden=self.step.hidden, large=True)

    def _note_failure(self, error: Exception, check: str) -> None:
        self.tally.add(FaultKind.LAUNCH_ERROR, check, str(error))
        try:
            self._require_device(str(error))
        except DeviceLostError as lost:
            self._note_lost(lost)

    def repeat(self, count: int) -> ProblemResult:
        """Launch the problem ``count`` times."""
        stream = self.device.create_stream(non_blocking=True)
        expected = self.references.get(self.problem, "normal", 0)
        try:
            with Case(self.device, self.op, self.problem) as case:
                case.prepare(self.launchable)
                is_fixed = self.kernel.deterministic
                check_launches(self.device, case, self.launchable, stream, expected, count, self.tally, deterministic=is_fixed)
        except _LAUNCH_ERRORS as error:
            self._note_failure(error, LAUNCHES)
        return self.tally.finish(self.problem.name, hidden=self.step.hidden)

    def _ask_support(self, case: Case) -> str:
        try:
            reason = self.launchable.supports(**case.arguments)
            if not reason:
                case.prepare(self.launchable)
        except _LAUNCH_ERRORS as error:
            self.tally.add(FaultKind.LAUNCH_ERROR, "supports", str(error))
            return ""
        return reason

    def _run_guarded(self, case: Case, stream: Stream) -> None:
        first = self._run_checked(case, stream, "normal", seed=0)
        if first is None:
            return
        if not self.step.hidden:
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
        if not self._launch(case, stream, check, distribution):
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
        if not self._launch(case, stream, "determinism", "normal"):
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
                if not self._launch(case, stream, "schedules", "normal"):
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
        except _LAUNCH_ERRORS as error:
            code = getattr(error, "code", 0) or self.device.take_last_error()[0]
            implicit = code == _CAPTURE_IMPLICIT or str(_CAPTURE_IMPLICIT) in str(error)
            kind = FaultKind.WRONG_STREAM if implicit else FaultKind.NOT_CAPTURABLE
            self.tally.add(kind, "capture", f"the launch cannot be captured into a graph: {error}")
            self._require_device(str(error))
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
            self._require_device(str(error))
            return
        self.tally.num_launches += 1
        self._compare_bits(case, expected, FaultKind.REPLAY_DIFFERS, "capture", "replay of the captured graph gives other bits")

    def _run_sanitized(self, stream: Stream) -> None:
        observer = self.device.observer
        assert observer is not None
        expected = self.references.get(self.problem, "normal", 0)
        with Case(self.device, self.op, self.problem, Layout.EXACT) as case, observer.observe():
            observer.take_reports()
            try:
                case.prepare(self.launchable)
                case.upload(expected.inputs)
                with observer.use_options({"read_only": ",".join(map(str, case.input_addresses))}):
                    self._launch(case, stream, "sanitizer", "normal")
            finally:
                reports = observer.take_reports()
                self.tally.note_check("sanitizer")
                for report in reports:
                    if report.severity == "error":
                        times = f" ({report.count} times)" if report.count > 1 else ""
                        name = case.find_input(report.address) if report.kind == "read_only_write" else ""
                        what = f"a store to input {name}, which may be changed by no kernel, not even for a while: " if name else ""
                        self.tally.add(classify_report(report), "sanitizer", what + report.text + times)

    def _launch(self, case: Case, stream: Stream, check: str, distribution: str) -> bool:
        """Run once to its end. False (and a fault) when it failed; raises :class:`DeviceLostError` when the device went with it."""
        self.tally.num_launches += 1
        try:
            case.launch(self.launchable, stream)
            stream.synchronize()
        except _LAUNCH_ERRORS as error:
            endless = self._find_endless_loops(check)
            for text in endless:
                self.tally.add(FaultKind.TIMEOUT, check, text, distribution)
            if not endless:
                self.tally.add(FaultKind.LAUNCH_ERROR, check, str(error), distribution)
            self._require_device(str(error))
            return False
        return True

    def _find_endless_loops(self, check: str) -> list[str]:
        """Return what the emulated device says of a launch that it ended because of a loop; the sanitizer's step takes all it says."""
        if self.device.observer is None or check == "sanitizer":
            return []
        return [r.text for r in self.device.observer.take_reports() if classify_report(r) is FaultKind.TIMEOUT]

    def _require_device(self, reason: str) -> None:
        """Raise when the device still fails after its last error was taken."""
        self.device.take_last_error()
        try:
            self.device.synchronize()
        except DeviceError as error:
            raise DeviceLostError(reason) from error
