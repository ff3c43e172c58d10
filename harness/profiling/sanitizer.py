"""compute-sanitizer on one launch of a variant: the GPU's own check of bounds, races in shared memory, and barriers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.errors import ToolError
from harness.profiling.ncu import NotServedError, make_target_command
from harness.profiling.target import NOT_SERVED
from harness.profiling.tools import SANITIZER, Tools, shorten

CHECKS = ("memcheck", "racecheck", "initcheck", "synccheck")
_ERROR_STATUS = 86
_SUMMARY = re.compile(r"=+ (?:ERROR SUMMARY: (\d+) errors?|RACECHECK SUMMARY: (\d+) hazards? displayed)")
_MARK = re.compile(r"^=+ ?")
_MAX_FINDINGS = 3
_REFUSALS = re.compile(r"Device not supported|not supported on this|Unable to find injection library", re.IGNORECASE)
_NO_FINDING = ("Saved host", "Host Frame", "COMPUTE-SANITIZER", "ERROR SUMMARY", "RACECHECK SUMMARY")


@dataclass(frozen=True)
class Checked:
    """What one check said: how many errors, and the first few of them in the tool's words."""

    check: str
    num_errors: int
    findings: tuple[str, ...] = ()


def check_launch(tools: Tools, op: str, variant: str, problem: str, checks: Sequence[str] = CHECKS) -> list[Checked]:
    """Run the checks one after the other. Raises :class:`UnavailableError` without the tool, :class:`ToolError` where one fails."""
    path = tools.find(SANITIZER)
    found = []
    for check in checks:
        command = make_target_command(op, variant, problem, layout="exact")
        done = tools.run([path, "--tool", check, "--error-exitcode", str(_ERROR_STATUS), *command])
        if refusal := _REFUSALS.search(done.text):
            tools.refuse(SANITIZER, f"compute-sanitizer does not work on this machine: {refusal[0]}")
        found.append(read_check(check, done.status, done.text))
    return found


def read_check(check: str, status: int, text: str) -> Checked:
    """Return what a run says. A run without the tool's own closing line, or whose program failed by itself, is no clean one."""
    if served := re.search(rf"{NOT_SERVED}: (.*)", text):
        raise NotServedError(served[1])
    summaries = _SUMMARY.findall(text)
    if not summaries:
        raise ToolError(f"compute-sanitizer's {check} did not finish (status {status}):\n{shorten(text)}")
    num_errors = sum(int(errors or hazards) for errors, hazards in summaries)
    if num_errors == 0 and status:
        raise ToolError(f"the program under compute-sanitizer's {check} failed with status {status}:\n{shorten(text)}")
    return Checked(check, num_errors, tuple(_list_findings(text)) if num_errors else ())


def _list_findings(text: str) -> list[str]:
    """Return the first reports, without host frames, and one of those that differ in their thread only."""
    found: dict[str, str] = {}
    block: list[str] = []
    for line in [*(_MARK.sub("", each) for each in text.splitlines() if each.startswith("===")), ""]:
        if line.strip():
            block.append(line.strip())
            continue
        report = [each for each in block if not each.startswith(_NO_FINDING)]
        if report:
            found.setdefault(" ".join(report[:2]), "; ".join(report))
        block = []
    return list(found.values())[:_MAX_FINDINGS]


def describe_checks(checks: Sequence[Checked]) -> Mapping[str, str]:
    """Return a sentence by check."""
    return {c.check: "clean" if not c.num_errors else f"{c.num_errors} errors: {' | '.join(c.findings)}" for c in checks}
