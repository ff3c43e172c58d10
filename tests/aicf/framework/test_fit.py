"""``fit``: runs that are stopped, killed or out of disk go on from a whole checkpoint with the same bits."""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from rich.console import Console

from aicf import Tensor
from aicf.data import DataLoader
from aicf.errors import StateError
from aicf.train import Step, fit
from aicf.train.progress import Report
from device import Device
from device.runtime import RuntimeDevice
from tests.aicf.framework.killed_training import X, Y, make_step, read_content

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def made() -> tuple[Step, DataLoader]:
    return make_step("numpy")


@pytest.fixture
def step(made: tuple[Step, DataLoader]) -> Iterator[Step]:
    """One step for all tests, as it was at first."""
    before = made[0].state_dict()
    yield made[0]
    made[0].load_state_dict(before)


def make_loader() -> DataLoader:
    return DataLoader((X, Y), batch=8, seed=5)


def run_killed(folder: Path, backend: str, steps: int, kills: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.aicf.framework.killed_training", str(folder), backend, str(steps), str(kills), "7"]
    environ = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "AICF_DEVICE": "emulated"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check_killed(found: dict[str, Any]) -> None:
    assert all(trial["killed"] for trial in found["trials"])
    assert [trial for trial in found["trials"] if not trial["same"]] == []


def test_a_killed_run_goes_on_with_the_bits_of_one_that_was_not(tmp_path: Path) -> None:
    check_killed(run_killed(tmp_path, "numpy", 8, 4))


@pytest.mark.slow
def test_twenty_killed_runs_go_on_with_the_bits_of_one_that_was_not(tmp_path: Path) -> None:
    found = run_killed(tmp_path, "numpy", 14, 20)
    check_killed(found)
    assert len({trial["moment"] for trial in found["trials"]}) > 15
    # Some died while a file was written: it lay beside its place.
    assert any(name.startswith(".step-") for trial in found["trials"] for name in trial["left"])


@pytest.mark.slow
def test_a_killed_run_on_the_device_goes_on_with_the_same_bits(emulated_device: object, tmp_path: Path) -> None:
    check_killed(run_killed(tmp_path, "cuda", 5, 1))


def test_a_run_is_the_loop_that_one_would_write(step: Step) -> None:
    expected = [step(*batch).item() for batch in make_loader().epochs(2)]
    step.load_state_dict(make_step("numpy")[0].state_dict())
    history = fit(step, make_loader(), epochs=2, read_every=1, show=False)
    assert list(history.losses) == expected
    assert history.steps == tuple(range(1, 11))


def test_a_run_that_is_done_does_nothing(step: Step, tmp_path: Path) -> None:
    first = fit(step, make_loader(), steps=4, checkpoints=tmp_path, show=False)
    again = fit(step, make_loader(), steps=4, checkpoints=tmp_path, show=False)
    assert (again.losses, again.resumed_at) == (first.losses, 4)
    with pytest.raises(ValueError, match="4 steps are done there, and 3 are asked for"):
        fit(step, make_loader(), steps=3, checkpoints=tmp_path, show=False)
    with pytest.raises(ValueError, match=r"holds step-000000004.safetensors; name another folder"):
        fit(step, make_loader(), steps=5, checkpoints=tmp_path, resume=False, show=False)


def test_the_last_checkpoints_are_kept_and_the_curve_is_drawn(step: Step, tmp_path: Path) -> None:
    fit(step, make_loader(), steps=7, checkpoints=tmp_path, save_every=2, keep=2, read_every=1, show=False)
    assert sorted(p.name for p in tmp_path.iterdir() if p.name[0] != ".") == [
        "loss.svg",
        "step-000000006.safetensors",
        "step-000000007.safetensors",
    ]
    lines = [e for e in ET.parse(tmp_path / "loss.svg").getroot() if e.tag.endswith("polyline")]
    assert [len(line.get("points", "").split()) for line in lines] == [7, 7]


class Interrupting(DataLoader):
    """A loader during whose third batch somebody presses Ctrl-C."""

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for i, batch in enumerate(super().__iter__()):
            if i == 2:
                os.kill(os.getpid(), signal.SIGINT)
            yield batch


def test_an_interrupted_run_is_saved_behind_its_step_and_goes_on(step: Step, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match=r"stopped after step 3 of 8; saved as .*step-000000003.safetensors"):
        fit(step, Interrupting((X, Y), batch=8, seed=5), steps=8, checkpoints=tmp_path / "a", read_every=1, show=False)
    assert signal.getsignal(signal.SIGINT) is before
    found = fit(step, make_loader(), steps=8, checkpoints=tmp_path / "a", read_every=1, show=False)
    step.load_state_dict(make_step("numpy")[0].state_dict())
    expected = fit(step, make_loader(), steps=8, checkpoints=tmp_path / "b", read_every=1, show=False)
    assert (found.losses, found.resumed_at) == (expected.losses, 3)
    name = "step-000000008.safetensors"
    assert read_content(tmp_path / "a" / name) == read_content(tmp_path / "b" / name)


def test_a_full_disk_is_named_and_the_older_checkpoint_stands(step: Step, tmp_path: Path) -> None:
    fit(step, make_loader(), steps=2, checkpoints=tmp_path, show=False)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # a file may have no more bytes
    try:
        with pytest.raises(StateError, match=r"step-000000003.safetensors: cannot be written: File too large; what was there before"):
            fit(step, make_loader(), steps=4, checkpoints=tmp_path, save_every=1, show=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [p.name for p in tmp_path.glob("*step*")] == ["step-000000002.safetensors"]
    assert fit(step, make_loader(), steps=4, checkpoints=tmp_path, show=False).resumed_at == 2


def test_a_checkpoint_that_is_cut_short_is_named_with_the_older_one(step: Step, tmp_path: Path) -> None:
    fit(step, make_loader(), steps=4, checkpoints=tmp_path, save_every=2, show=False)
    newest = tmp_path / "step-000000004.safetensors"
    newest.write_bytes(newest.read_bytes()[:-100])
    before = step.state_dict()
    with pytest.raises(StateError, match=r"step-000000004.safetensors: cannot be read: .*step-000000002.safetensors is intact: remove"):
        fit(step, make_loader(), steps=6, checkpoints=tmp_path, show=False)
    assert all(np.array_equal(value, before[name]) for name, value in step.state_dict().items())
    newest.unlink()
    assert fit(step, make_loader(), steps=6, checkpoints=tmp_path, show=False).resumed_at == 2


def test_a_checkpoint_of_another_run_is_refused_and_changes_nothing(step: Step, tmp_path: Path) -> None:
    fit(step, make_loader(), steps=1, checkpoints=tmp_path, show=False)
    with pytest.raises(StateError, match="is not a checkpoint of this run: the state has seed 5, but this loader has seed 6"):
        fit(step, DataLoader((X, Y), batch=8, seed=6), steps=2, checkpoints=tmp_path, show=False)
    with pytest.raises(ValueError, match=r"missing parameter:0\.weight; unknown none"):
        step.load_state_dict({name: value for name, value in step.state_dict().items() if name != "parameter:0.weight"})


def test_a_folder_is_one_runs(step: Step, tmp_path: Path) -> None:
    class Second(DataLoader):
        def __iter__(self) -> Iterator[tuple[Any, ...]]:
            fit(step, make_loader(), steps=1, checkpoints=tmp_path, show=False)
            return super().__iter__()

    with pytest.raises(StateError, match="another run writes its checkpoints here"):
        fit(step, Second((X, Y), batch=8), steps=1, checkpoints=tmp_path, show=False)


def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere() -> None:
    for is_terminal, expected in ((True, "3/3"), (False, "net: step 3/3, loss 0.5, ")):
        text = io.StringIO()
        with Report("net", 3, 0, Console(file=text, force_terminal=is_terminal, width=120)) as report:
            report.update(1, 1.5)
            report.update(3, 0.5)
        assert expected in text.getvalue()
        assert "0.5" in text.getvalue()


def test_an_empty_loader_is_an_error(step: Step) -> None:
    class Empty(DataLoader):
        def __iter__(self) -> Iterator[tuple[Any, ...]]:
            return iter(())

    with pytest.raises(ValueError, match="the loader has no batch"):
        fit(step, Empty((X, Y), batch=8), steps=1, show=False)
    with pytest.raises(ValueError, match="either steps or epochs"):
        fit(step, make_loader(), show=False)


def test_batches_come_from_pinned_memory_through_two_buffers(device: Device) -> None:
    step, loader = make_step("cuda")
    before = step.state_dict()
    expected = [step(*batch).item() for batch in make_loader()]
    step.load_state_dict(before)
    addresses, loss = [], None
    for batch in step.feed(loader):
        addresses.append([array.address for array in batch])
        loss = step(*batch)  # nobody waits here
        assert loader.state_dict()["position"] == len(addresses)
    assert loss is not None and loss.item() == expected[-1]
    assert addresses == (addresses[:2] * 3)[:5]  # two places take turns
    rows = [(x.copy_to_host(), y.copy_to_host()) for x, y in step.feed(make_loader())]
    for (x, y), (x_true, y_true) in zip(rows, make_loader(), strict=True):
        assert np.array_equal(x, x_true) and np.array_equal(y, y_true)
    # What the plan was not made for is passed on as it is.
    (batch, *_) = step.feed(DataLoader((X, Y), batch=4))
    assert isinstance(batch[0], np.ndarray)
    step.load_state_dict(before)
    assert list(fit(step, make_loader(), epochs=1, read_every=1, show=False).losses) == expected


def test_a_batch_that_lies_as_the_inputs_do_is_one_copy(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    step, copies = make_step("cuda")[0], []
    before = step.state_dict()
    expected = [step(*batch).item() for batch in make_loader()]
    plain = RuntimeDevice.copy
    monkeypatch.setattr(RuntimeDevice, "copy", lambda self, *a, **k: (copies.append(a), plain(self, *a, **k))[1])
    for apart, count in ((False, 1), (True, 2)):
        step.load_state_dict(before)
        losses = []
        for batch in step.feed(make_loader()):
            arrays = [Tensor(a.copy_to_host(), backend="cuda").data for a in batch] if apart else batch
            copies.clear()
            loss = step(*arrays)
            assert len(copies) == count
            losses.append(loss.item())
        assert losses == expected


def test_files_that_are_mapped_are_batches_too(step: Step, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    mapped = DataLoader((np.load(tmp_path / "x.npy", mmap_mode="r"), Y), batch=8, seed=5)
    found = fit(step, mapped, epochs=1, read_every=1, show=False).losses
    step.load_state_dict(make_step("numpy")[0].state_dict())
    assert fit(step, make_loader(), epochs=1, read_every=1, show=False).losses == found
