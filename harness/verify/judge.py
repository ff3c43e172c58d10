"""The judge: verifies a variant on its problems, or says what is wrong with it.

:mod:`harness.verify.protocol` says what is done on one problem. Over all comparisons on normal inputs, the mean signed error must look
like that of rounding errors (:mod:`harness.verify.bias`).
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from device.interface import Device
from harness.nvtx_ranges import mark_range
from harness.spec import Kernel, Launchable, Op, Variant
from harness.verify.bias import pool
from harness.verify.case import plan_arguments
from harness.verify.feasibility import is_affordable
from harness.verify.findings import Fault, FaultKind, ProblemResult, Status, VerifyResult
from harness.verify.launch_faults import LAUNCH_ERRORS
from harness.verify.loops import limit_loops
from harness.verify.places import NO_PLACES, list_restrictions
from harness.verify.plan import Effort, Pool, Step, find_size, make_plan, make_pools
from harness.verify.protocol import ProblemSession
from harness.verify.reference import References, check_tolerance
from harness.verify.repeating import shrink
from harness.verify.schedules import make_schedules

# Raised by one when the protocol or its thresholds change, so that earlier verdicts are not taken for current ones.
VERIFY_VERSION = 10


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
        self.complete = not problem_names and math.isinf(effort.max_listed_flops)
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
        if not lost and self.effort.num_launches and not self.problem_names:
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

    def _make_session(self, kernel: Kernel, launchable: Launchable, step: Step) -> ProblemSession:
        return ProblemSession(self.device, self.op, kernel, launchable, self._references, step, self.schedules)

    def _select_served(self, candidates: Pool, launchable: Launchable) -> list[Step]:
        """Return the pool's steps up to the last that counts; small ones among them that are not served are reported as such."""
        chosen, served = [], 0
        for step in candidates.steps:
            if served == candidates.count:
                break
            if step.large and self.op.sampling and self._find_obstacle(step):
                continue
            is_served = True
            # What a binding raises here, it raises when the step is run, and is a fault there.
            with contextlib.suppress(*LAUNCH_ERRORS):
                is_served = not launchable.supports(**plan_arguments(self.op, step.problem))
            served += is_served
            if is_served or candidates.reports_unserved:
                chosen.append(step)
        return chosen

    def _find_obstacle(self, step: Step) -> str:
        """Return why no part of a large problem's outputs can be judged here, or ""."""
        if is_affordable(self.op, step.problem, is_search=bool(step.distributions)):
            return ""
        restrictions = list_restrictions(self.op, step.problem, 1)
        if not restrictions:
            return NO_PLACES
        if self.device.observer is not None:
            return ""
        obstacles = [r.find_obstacle(r.choose_places({})) for r in restrictions]
        return obstacles[0] if all(obstacles) else ""

    def _repeat_launches(self, kernel: Kernel, launchable: Launchable, steps: Sequence[Step], results: list[ProblemResult]) -> str:
        """Launch the smallest problem that is served many times, and put what is found to its result.

        Returns the problem's name if that lost the device.
        """
        passed = [s for s, r in zip(steps, results, strict=True) if r.status is Status.PASSED and not r.large]
        if not passed:
            return ""
        step = min(passed, key=lambda s: find_size(self.op, s.problem))
        smaller = shrink(self.op, step.problem, launchable)
        step = next((s for s in passed if s.problem.name == smaller.name), None) or Step(smaller, (), hidden=True)
        session = self._make_session(kernel, launchable, step)
        if step not in passed:  # then it is proved as any other first
            with limit_loops(self.device, self.op, step.problem):
                results.append(session.run())
            if results[-1].status is not Status.PASSED:
                return step.problem.name if session.device_lost else ""
            session = self._make_session(kernel, launchable, step)
        found = session.repeat(self.effort.num_launches)
        index = next(i for i, r in enumerate(results) if r.problem == found.problem)
        before = results[index]
        checks, num_launches = (*before.checks, *found.checks), before.num_launches + found.num_launches
        results[index] = replace(before, status=found.status, faults=found.faults, checks=checks, num_launches=num_launches)
        return found.problem if session.device_lost else ""
