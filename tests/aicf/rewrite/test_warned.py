"""Warnings of a run are told once for each kind and kernel, then counted; other runs, and code outside of runs, tell them anew."""

from __future__ import annotations

import logging

import pytest

from aicf.rewrite.warned import Warned, tell_once

_LOG = logging.getLogger("aicf.rewrite")


class Talker:
    def __init__(self) -> None:
        self.warned = Warned()

    @tell_once
    def talk(self, owner: str, kernel: str) -> None:
        _LOG.warning("%s goes through host memory: %s", owner, kernel)

    @tell_once
    def talk_within(self) -> None:
        self.talk("a", "wide")
        self.talk("b", "wide")


def test_a_warning_is_told_once_for_each_kernel_and_run(caplog: pytest.LogCaptureFixture) -> None:
    one, other = Talker(), Talker()
    for _ in range(9):
        one.talk("a", "wide")
    one.talk_within()
    one.talk("c", "tall")
    other.talk("d", "wide")
    assert caplog.messages == [
        "a goes through host memory: wide",
        "a goes through host memory: wide (10 times by now)",
        "c goes through host memory: tall",
        "d goes through host memory: wide",
    ]
    assert sorted(one.warned.counts.values()) == [1, 11]


def test_outside_of_runs_every_warning_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ZeroDivisionError), Warned():
        _LOG.warning("%s", 1 // 0)
    for _ in range(2):
        _LOG.warning("%s goes through host memory: %s", "a", "wide")
    assert len(caplog.messages) == 2
    assert not _LOG.filters
