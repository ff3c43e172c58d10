"""Progress: one line on a terminal, few lines elsewhere, and what is to stay stays."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator

import pytest

from harness.terminal import console
from harness.terminal.console import open_stages

PROGRAM = """
import sys
from harness.terminal.console import open_stages
with open_stages("bench toy", {"build": 30, "verify": 30}) as stages:
    for i in range(30):
        stages.advance("build", f"kernel/with_a_name_that_is_far_too_long_for_the_line{i}", known=i < 10)
    stages.say("kernel7 failed: race")
    for i in range(30):
        stages.advance("verify", str(i))
"""


def run_on_terminal(program: str, columns: int) -> str:
    """Run Python with a terminal of so many columns as its stderr, and return what was written there."""
    ours, theirs = pty.openpty()
    env = os.environ | {"COLUMNS": str(columns), "TERM": "xterm"}
    with subprocess.Popen([sys.executable, "-c", program], stderr=theirs, env=env) as process:
        os.close(theirs)
        text = b"".join(_read_all(ours))
    os.close(ours)
    assert process.returncode == 0
    return text.decode()


def _read_all(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            chunk = os.read(descriptor, 4096)
        except OSError:  # the other side is closed
            return
        if not chunk:
            return
        yield chunk


@pytest.mark.parametrize("columns", [80, 100])
def test_stages_are_one_line_on_a_terminal_with_what_is_done_and_what_remains(columns: int) -> None:
    text = run_on_terminal(PROGRAM, columns)
    plain = "".join(part.partition("m")[2] if part[:1].isdigit() and "m" in part[:6] else part for part in text.split("\x1b["))
    assert "build 0/30 · verify 0/30" in plain and "build 30/30 · verify 30/30 0:00:0" in plain
    # What stays is the failure alone: the live line is written over and erased.
    assert [line for line in text.replace("\r", "").split("\n") if "failed: race" in line]
    assert text.count("\n") <= 3


def test_stages_are_few_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    exec(PROGRAM, {})
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" (0 s)")[0] for line in lines] == [
        "bench toy: build 30/30 (10 before) · verify 0/30",
        "bench toy: kernel7 failed: race",
        "bench toy: build 30/30 (10 before) · verify 30/30",
    ]


def test_a_long_stage_says_a_line_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now_s)
    with open_stages("sweep", {"time": 100}) as stages:
        for _ in range(99):
            now_s += 1.0
            stages.advance("time")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"sweep: time {i}/100 ({i} s; time: about {100 - i} s left)" for i in (15, 30, 45, 60, 75, 90)]


def test_what_was_known_before_says_nothing_about_the_time_that_is_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now_s)
    with open_stages("bench toy", {"build": 100}) as stages:
        for _ in range(60):
            stages.advance("build", known=True)
        for _ in range(10):
            now_s += 2.0
            stages.advance("build")
    assert capsys.readouterr().err.splitlines() == ["bench toy: build 68/100 (60 before) (16 s; build: about 64 s left)"]


def test_quiet_stages_say_nothing_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    with open_stages("bench toy", {"build": 1}, quiet=True) as stages:
        stages.advance("build")
        stages.say("failed")
    assert capsys.readouterr() == ("", "")


def test_of_stages_at_the_same_time_the_one_that_needs_the_longest_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: clock[0])
    with open_stages("bench toy", {"build": 20, "verify": 20}) as stages:
        for _ in range(8):
            clock[0] += 1.0
            stages.advance("build")
            clock[0] += 1.0
            stages.advance("verify")
    assert capsys.readouterr().err.splitlines() == ["bench toy: build 8/20 · verify 7/20 (15 s; verify: about 26 s left)"]
