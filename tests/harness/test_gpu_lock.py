"""The turn on a GPU: one process at a time, and a killed one gives it back."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import harness.timing.gpu_lock
from harness.timing.gpu_lock import GpuLock


def hold(folder: Path, ours: Connection) -> None:
    with GpuLock("GPU-1", folder).hold():
        ours.send("mine")
        ours.recv()
        ours.send("done")


def test_one_process_has_the_turn_and_death_gives_it_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness.timing.gpu_lock, "_SIGN_OF_LIFE_S", 0.01)
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=hold, args=(tmp_path, theirs), daemon=True)
    process.start()
    assert ours.recv() == "mine"
    signs: list[str] = []

    def report(text: str) -> None:
        signs.append(text)
        if len(signs) == 3 and process.pid is not None:
            os.kill(process.pid, signal.SIGKILL)

    with GpuLock("GPU-2", tmp_path).hold(report):
        assert not signs, "another GPU is free"
    with GpuLock("GPU-1", tmp_path).hold(report):
        assert len(signs) >= 3
    process.join()
    ours.close()
    theirs.close()


def test_turns_nest_and_the_outermost_ends_them(tmp_path: Path) -> None:
    turn = GpuLock("GPU-1", tmp_path)
    with turn.hold():
        with GpuLock("GPU-1", tmp_path).hold():
            pass
        with turn._path.open("w") as file:
            assert not harness.timing.gpu_lock._lock(file), "the inner one has not given it back"
    with turn._path.open("w") as file:
        assert harness.timing.gpu_lock._lock(file)
