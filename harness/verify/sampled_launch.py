"""Launches of a large problem: whole on a GPU; on the emulated device of some blocks, or of all, within a limit of instructions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from device.interface import Device, DeviceError, Graph, Stream
from device.observer import Report
from harness.spec import Launchable, Op, Problem
from harness.verify.allocations import Layout
from harness.verify.case import Case
from harness.verify.feasibility import (
    FINE_PART,
    LEAST_FINE_PART,
    LEAST_PART,
    MAX_INSTRUCTIONS,
    NUM_BLOCKS,
    PART_SLACK,
    WHOLE_PART,
    NotJudgedError,
    TooLongError,
    take_part,
)
from harness.verify.findings import Tally, classify_report
from harness.verify.places import make_draws
from harness.verify.written import CHECK

DEPENDENT = "what its blocks write may depend on blocks that are not run"
# Blocks round a problem up, so that a forecast by smaller ones is not exact.
_FORECAST_SLACK = 1.1
_WAITING = "its blocks wait for others, of which only some would run"


@dataclass(frozen=True)
class SampledLaunch:
    """Launches one variant on one large problem; what is wrong goes into ``tally``."""

    device: Device
    op: Op
    problem: Problem
    launchable: Launchable
    tally: Tally
    stream: Stream
    seed: int = 1

    def _open_case(self) -> Case:
        try:
            case = Case(self.device, self.op, self.problem, Layout.EXACT)
        except DeviceError as error:
            raise NotJudgedError(f"its tensors do not fit the device's memory: {error}") from error
        try:
            case.prepare(self.launchable)
        except BaseException:
            case.free()
            raise
        return case

    def _capture(self, case: Case) -> Graph:
        with self.device.capture(self.stream) as graphs:
            case.launch(self.launchable, self.stream)
        return graphs[0]

    def _launch(self, case: Case, limit: int, *, sample: bool = True) -> int:
        """Launch, whole on a GPU and by sampled blocks on the emulated device, where they may take ``limit`` warp instructions.

        Returns how many they took, with matrix products as the emulated device counts them; 0 on a GPU.
        """
        observer = self.device.observer
        self.tally.num_launches += 1
        if observer is None:
            self._run(case)
            return 0
        options = {"instruction_limit": str(limit), "read_only": ",".join(map(str, case.input_addresses))}
        if sample:
            seed = make_draws(self.op, self.problem, "blocks", self.seed).integers(1, 2**31)
            options |= {"sample_blocks": str(NUM_BLOCKS), "sample_seed": str(seed), "given": ",".join(map(str, case.given_addresses))}
        observer.take_reports()
        with observer.use_options(options), observer.observe(("memcheck",)):
            failure: RuntimeError | None = None
            try:
                self._run(case)
            except RuntimeError as error:
                failure = error
            num_instructions = int(observer.get_option("instructions"))
            is_alone = not sample or observer.get_option("dependence").startswith("0,")
            reports = observer.take_reports()
            self._note_reports(reports, limit, sample=sample)
        if failure is not None:
            if not is_alone and not self.tally.faults:
                self._forget_launch(f"{DEPENDENT}: {failure}")
            raise failure
        return num_instructions

    def _run(self, case: Case) -> None:
        case.launch(self.launchable, self.stream)
        self.stream.synchronize()

    def _note_reports(self, reports: Sequence[Report], limit: int, *, sample: bool) -> None:
        kinds = {r.kind for r in reports}
        if sample and "endless_loop" in kinds:
            self._forget_launch(_WAITING)
        if "instruction_limit" in kinds:
            which = f"{NUM_BLOCKS} of its blocks" if sample else "its blocks"
            self._forget_launch(
                f"{which} take more than {limit / 1e6:.0f} million warp instructions",
                TooLongError if limit >= MAX_INSTRUCTIONS else NotJudgedError,
            )
        for report in reports:
            if report.severity == "error":
                self.tally.add(classify_report(report), CHECK, report.text)

    def _forget_launch(self, reason: str, error: type[NotJudgedError] = NotJudgedError) -> NoReturn:
        """Clear the error with which a launch ended, and say that it tells nothing."""
        assert self.device.observer is not None
        self.device.observer.clear_error()
        raise error(reason) from None

    def _require_few_instructions(self, limit: int, error: type[NotJudgedError] = NotJudgedError) -> None:
        """Refuse, before inputs are drawn, what would be ended by the limit: by parts of the problem, in memory that holds nothing."""
        part, least = WHOLE_PART, LEAST_PART
        if max(self.problem.sizes.values()) >= FINE_PART * LEAST_FINE_PART:  # a part of a part tells as much of so many
            part, least = FINE_PART, LEAST_FINE_PART
        try:
            taken = self._count_part(part, least, PART_SLACK * limit // WHOLE_PART)
            whole = taken * part
            # What does not grow with the size is told by half of that part.
            most = PART_SLACK * limit * part // WHOLE_PART
            if limit < whole <= most and (less := self._count_part(2 * part, least // 2, limit)):
                whole = taken + (2 * part - 2) * (taken - less)
        except NotJudgedError as reason:
            raise error(str(reason)) from reason
        if whole > _FORECAST_SLACK * limit:
            raise error(f"its blocks would take about {whole / 1e6:.0f} million warp instructions, more than {limit / 1e6:.0f}")

    def _count_part(self, part: int, least: int, limit: int) -> int:
        """Return the warp instructions of a part of the problem; 0 where it is smaller than ``least``, or its launch fails."""
        assert self.device.observer is not None
        smaller = take_part(self.op, self.problem, self.launchable, part, least)
        if smaller is None:
            return 0
        probe = replace(self, problem=smaller, tally=Tally())
        try:
            with probe._open_case() as case:
                return probe._launch(case, limit, sample=False)
        except NotJudgedError as error:
            raise NotJudgedError(f"a {part}th of it: {error}") from error
        except RuntimeError:
            self.device.observer.clear_error()  # what is wrong shows in the launch itself
            return 0

    @property
    def _depends(self) -> bool:
        """Whether in the last launch of some blocks any of what they wrote may depend on others."""
        observer = self.device.observer
        return observer is not None and observer.get_option("dependence") != "0,0"
