"""What begins before a sweep's session: the device opens once, and what is wrong is said where it is asked for."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import device
from device.interface import Device
from device.settings import Settings
from harness.discover import LoadedOp
from harness.errors import BuildError
from harness.spec import Op
from harness.sweep import startup, worker
from harness.sweep.startup import Preparation
from tests.harness.fake_device import FakeDevice
from tests.harness.toy_op import make_toy


def test_threads_that_open_the_device_get_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Device] = []
    others_wait = threading.Event()

    def open_slowly(name: str, settings: Settings) -> Device:
        assert others_wait.wait(10)
        opened.append(FakeDevice(is_emulated=True))
        return opened[-1]

    monkeypatch.setattr(device, "_opened", {})
    monkeypatch.setattr(device, "_open", open_slowly)
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(device.open_device, "emulated") for _ in range(4)]
        others_wait.set()
        assert len({id(a.result()) for a in asked}) == len(opened) == 1


def test_a_device_that_failed_to_open_can_be_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, settings: Settings) -> Device:
        raise device.UnavailableError("no such library")

    monkeypatch.setattr(device, "_opened", {})
    monkeypatch.setattr(device, "_open", refuse)
    for _ in range(2):
        with pytest.raises(device.UnavailableError, match="no such library"):
            device.open_device("emulated")


def test_what_fails_beforehand_is_said_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(loaded: LoadedOp) -> Path:
        raise BuildError("the binding does not compile")

    def fail(name: str | None) -> None:
        raise device.UnavailableError("no GPU")

    monkeypatch.setattr(startup, "_build_binding", refuse)
    monkeypatch.setattr(startup, "_build_instruments", fail)
    monkeypatch.setattr(startup, "open_device", fail)
    with Preparation(LoadedOp(make_toy(), tmp_path), (), starts_processes=False) as preparation:
        assert preparation.crew.size == 0
        with pytest.raises(BuildError, match="does not compile"):
            _ = preparation.binding


def test_processes_that_no_sweep_took_end_with_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("_build_binding", "_build_instruments", "open_device"):
        monkeypatch.setattr(startup, name, lambda _: tmp_path)
    monkeypatch.setenv("AICF_JOBS", "2")
    with Preparation(LoadedOp(make_toy(), tmp_path), (), "no such device") as preparation:
        assert preparation.crew.size == 2, "no more than there are cores"
        processes = [h.process for h in preparation.crew._hands]
    assert preparation.crew.size == 0 and not any(p.is_alive() for p in processes)


@pytest.mark.parametrize("is_emulated", [False, True])
def test_inputs_are_made_early_once_where_they_will_be_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_emulated: bool) -> None:
    made: list[str] = []

    def load(folder: Path) -> Op:
        made.append(folder.name)
        return make_toy()

    monkeypatch.setattr(startup, "open_device", lambda name: FakeDevice(is_emulated=is_emulated))
    monkeypatch.setattr(worker, "load_op", load)
    worker.make_work.cache_clear()
    names = (make_toy().problems[0].name,)
    startup.prepare_process(None, tmp_path, names)
    assert made == ([] if is_emulated else [tmp_path.name])
    work = worker.make_work(tmp_path, names)
    assert made == [tmp_path.name] and list(work.inputs) == list(names)
    worker.make_work.cache_clear()
