"""Running a program on the emulated device and judging it by its exit status, its own output, and the emulator's reports."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from device.programs.arguments import shorten_repeats
from device.programs.build import BuildOptions, build_program, hash_program
from device.programs.find import Program
from device.programs.process import make_end_with_parent, make_environment
from device.settings import EMULATOR_PREFIX

STATUSES = ("pass", "ran", "fail", "unsupported", "waived", "timeout", "compile")
# Raised with the meaning of a verdict, so that what an older version judged is judged again.
_VERDICT_VERSION = 6
# A program's own verdict. "0 failed" and "failed: 0" are none; nor is the word in a sentence such as "if this failed".
_FAILED = re.compile(
    r"(?<!0 )\bFAIL(?:ED|URE|S)?\b(?!\s*[:=]\s*0\b)"
    r"|\b(?:tests?|check|verification|validation|comparison|results?)\W{1,3}(?:has |have )?fail(?:ed|s|ure)?\b(?!\s*[:=]\s*0\b)"
    r"|\b(?:incorrect|wrong) (?:result|answer|output)|\b[Rr]esults? (?:is|are) (?:wrong|incorrect|NOT correct)"
    r"|\b(?:do|did|does)(?: not|n'?t) match\b|\bMISMATCH(?:ED)?\b|\bNOT (?:OK|CORRECT|EQUAL)\b"
)
_PASSED = re.compile(
    r"\bpass(?:ed|es)?\b|\bsuccess(?:ful|fully)?\b|\bcorrect(?:ly)?\b|\bOK\b|\bmatch(?:es|ed)?\b|\bverified\b|\bequal\b", re.IGNORECASE
)
# What a program says that was not given what it works on; with an exit status of its own.
_WANTS = re.compile(
    r"^\W*usage\b"
    r"|\b(?:cannot|can't|could ?n[o']t|failed to|unable to|error) (?:open|read|find|load)\w*\b.*(?:file|input|image|data|\.\w{2,4}\b)"
    r"|\bno such file\b|\b(?:file|image)\b.*\b(?:not found|does not exist|could not be (?:opened|read))"
    r"|\b(?:missing|too few|not enough) arguments?\b",
    re.IGNORECASE | re.MULTILINE,
)
_CUDA_ERROR = re.compile(r"\b(?:CUDA|cuda|GPU|gpu) ?(?:[Ee]rror|assert)\b\W+(?!(?:code )?(?:=|:)? *0\b|.*no error).{3,}")
_WAIVED = re.compile(r"\bwaiv(?:ed|ing)\b|\b(?:does not|doesn't|not) support", re.IGNORECASE)
_EXIT_WAIVED = 2
_UNSUPPORTED_KINDS = ("load_error", "unsupported")
_INTERRUPTED = "interrupted"  # the report of what a launch was at when the program was told to end
_GRACE_S = 10.0  # for that report
_KEPT_OUTPUT = 20_000


@dataclass(frozen=True)
class RunOptions:
    """How programs are run. ``emulated`` are options of the emulator by name; ``arguments`` go to every program."""

    runtime: Path
    cache: Path
    checks: str = "all"
    timeout_s: float = 120.0
    emulated: tuple[tuple[str, str], ...] = ()
    arguments: tuple[str, ...] = ()
    rerun: bool = False
    own_arguments: bool = True  # those of the program's build file, repetitions cut to one, where ``arguments`` has none
    most_output_mib: int = 512  # a program that prints more is ended
    core_s: float = 0.0  # processor time of all its threads after which it is ended, however busy the machine is; 0: no limit


@dataclass(frozen=True)
class Verdict:
    """What came of a program: one of :data:`STATUSES`, why in one line, and the end of what it printed."""

    program: str
    status: str
    reason: str
    seconds: float = 0.0
    output: str = ""
    findings: tuple[str, ...] = ()


def run_program(program: Program, build: BuildOptions, options: RunOptions) -> Verdict:
    """Compile and run one program; a verdict of the same executable under the same emulator and options is taken from the cache."""
    built = build_program(program, build)
    if built.binary is None:
        return Verdict(program.name, "compile", built.reason.splitlines()[0] if built.reason else "", 0.0, built.reason)
    kept = options.cache / "verdicts" / f"{_hash_run(program, build, options)}.json"
    if kept.is_file() and not options.rerun:
        verdict = _read_verdict(json.loads(kept.read_text()), program.name)
        if verdict.status != "timeout" or verdict.seconds >= options.timeout_s:
            return verdict
    verdict = execute(program, built.binary, _arguments(program, options), options)
    kept.parent.mkdir(parents=True, exist_ok=True)
    temporary = kept.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(asdict(verdict)))
    temporary.replace(kept)
    return verdict


def _arguments(program: Program, options: RunOptions) -> tuple[str, ...]:
    if options.arguments or not options.own_arguments:
        return options.arguments
    return shorten_repeats(program.recipe.arguments, program.main.read_text(errors="replace"))


def _hash_run(program: Program, build: BuildOptions, options: RunOptions) -> str:
    how = (options.checks, options.emulated, _arguments(program, options))
    identity = (_VERDICT_VERSION, hash_program(program, build), _hash_file(options.runtime), how)
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:24]


def _read_verdict(fields: dict[str, Any], name: str) -> Verdict:
    return Verdict(**{**fields, "program": name, "findings": tuple(fields["findings"])})


def execute(program: Program, binary: Path, arguments: tuple[str, ...], options: RunOptions) -> Verdict:
    """Run an executable of a program with these arguments, whatever the cache has, and judge what comes of it."""
    with tempfile.TemporaryDirectory(prefix="aicf-program-") as scratch:
        reports, output = Path(scratch) / "reports.jsonl", Path(scratch) / "output.txt"
        settings = {"checks": options.checks, "report_file": str(reports), **dict(options.emulated)}
        base = {key: value for key, value in os.environ.items() if not key.startswith(EMULATOR_PREFIX)}
        environment = make_environment(base, options.runtime, settings)
        begin = time.monotonic()
        with output.open("wb") as sink:
            process = subprocess.Popen(
                [str(binary), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=program.folder,
                env=environment,
                start_new_session=True,
                preexec_fn=make_end_with_parent(),
            )
            status = _wait(process, output, begin + options.timeout_s, options)
        seconds = time.monotonic() - begin
        text = _read_end(output)
        lines = reports.read_text(errors="replace").splitlines() if reports.is_file() else []
        found = [json.loads(line) for line in lines if line.endswith("}")]
    return judge(program.name, status, text, found, seconds)


def _wait(process: subprocess.Popen[bytes], output: Path, deadline: float, options: RunOptions) -> int | None:
    """Return the exit status; a process whose time is up (None), or that prints without end, is ended with all that it started.

    When its time is up it is asked to end first, which has the emulator report what it was at.
    """
    most_core_s = options.core_s or math.inf
    pause, is_late = 0.02, False
    while not is_late and output.stat().st_size <= options.most_output_mib << 20:
        try:
            return process.wait(max(0.0, min(pause, deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            pause = min(2 * pause, 0.5)
        is_late = time.monotonic() >= deadline or _read_core_seconds(process.pid) >= most_core_s
    if is_late:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    status = process.wait()
    return None if is_late else status


def _read_core_seconds(pid: int) -> float:
    """Return the processor time that a process of ours has used, of all its threads; 0 for one that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def judge(name: str, status: int | None, text: str, reports: list[dict[str, Any]], seconds: float) -> Verdict:
    """Turn what happened into a verdict. ``status`` is the exit status, None after a timeout."""
    unsupported = [r["text"] for r in reports if r["kind"] in _UNSUPPORTED_KINDS]
    said = [r for r in reports if r["severity"] == "error" and r["kind"] not in (*_UNSUPPORTED_KINDS, _INTERRUPTED)]
    was_at = next((_first_line(r["text"]) for r in reports if r["kind"] == _INTERRUPTED), "nothing reported of a launch")
    # An assertion is the program's own check: one that fails as the program meant it to is no finding about the program.
    findings = tuple(r["text"] for r in said if r["kind"] != "assertion_failed")
    failed = next((line.strip() for line in text.splitlines() if _FAILED.search(line)), "")
    passed = next((line.strip() for line in text.splitlines() if _PASSED.search(line)), "")

    def verdict(kind: str, reason: str) -> Verdict:
        return Verdict(name, kind, reason[:300], seconds, text[-_KEPT_OUTPUT:], findings)

    if unsupported and (status != 0 or failed or findings or not passed):
        return verdict("unsupported", _first_line(unsupported[0]))
    if status is None:
        return verdict("timeout", f"more than {seconds:.0f} s; {_first_line(findings[0]) if findings else was_at}")
    if findings:
        return verdict("fail", f"{len(findings)} findings: " + _first_line(findings[0]))
    if status == _EXIT_WAIVED and _WAIVED.search(text):
        return verdict("waived", next(line.strip() for line in text.splitlines() if _WAIVED.search(line)))
    if status < 0:
        return verdict("fail", f"ended by {signal.Signals(-status).name}: {_last_line(text)}")
    wants = _WANTS.search(text)
    if status != 0 and wants is not None and not failed:
        return verdict("waived", f"exit status {status}, without its arguments or files: {text[wants.start() :].strip().splitlines()[0]}")
    if status != 0:
        return verdict("fail", f"exit status {status}: {failed or _last_line(text)}")
    failed = failed or next((line.strip() for line in text.splitlines() if _CUDA_ERROR.search(line)), "")
    if failed:
        return verdict("fail", f"its own verdict: {failed}")
    return verdict("pass", passed) if passed else verdict("ran", "no verdict of its own")


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines[:2])


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no output")


def _read_end(path: Path, most: int = 4_000_000) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - most))
        return file.read().decode("utf-8", "replace")


@lru_cache(maxsize=4)
def _hash_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
