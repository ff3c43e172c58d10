"""Many steps at once: the bits of a call per batch, as one graph whose steps read their batches where they lie."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.random import Generator
from aicf.runtime.intake import Intake
from aicf.train.program import Step
from device import Device
from device.runtime import RuntimeDevice, RuntimeGraph

RNG = np.random.default_rng(0)
NUM_ROWS, NUM_STEPS = 8, 5
STACKS = [(RNG.normal(size=(NUM_STEPS, NUM_ROWS, 16)).astype(np.float32), RNG.integers(0, 4, (NUM_STEPS, NUM_ROWS))) for _ in range(4)]


def make(backend: str, p: float = 0.0, **options: Any) -> Step:
    aicf.manual_seed(0)
    drop = [nn.Dropout(p, Generator(7))] if p else []
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), *drop, nn.Linear(32, 4))
    rate = optim.cosine(1e-2, total=40, warmup=5) if p else 1e-2
    example = [Tensor(stack[0]) for stack in STACKS[0]]
    optimizer = optim.Adam(model.parameters(), lr=rate)
    return aicf.compile_step(model, lambda m, x, y: F.cross_entropy(m(x), y), optimizer, example, backend=backend, **options)


def run_each(step: Step, stacks: Any) -> list[float]:
    return [step(*(stack[i] for stack in stacks)).item() for i in range(NUM_STEPS)]


def check_bits(scanned: Step, called: Step, lift: Callable[[Any], Any] = lambda stack: stack) -> None:
    for stacks in STACKS:
        losses = scanned.scan(*map(lift, stacks))
        assert losses.shape == (NUM_STEPS,)
        assert losses.numpy().tolist() == run_each(called, stacks)
    own, others = scanned.state_dict(), called.state_dict()
    assert all(np.array_equal(own[name], value) for name, value in others.items())
    # A call of its own goes on where the last scan ended.
    assert run_each(scanned, STACKS[0]) == run_each(called, STACKS[0])


def test_a_scan_on_numpy_is_a_loop() -> None:
    check_bits(make("numpy", p=0.3, clip_norm=0.5), make("numpy", p=0.3, clip_norm=0.5))


@pytest.mark.parametrize("on_device", [False, True])
def test_a_scan_is_one_launch_with_the_same_bits(device: Device, on_device: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    scanned, copies, launches = make("cuda"), [], []
    plain, rows, launch = RuntimeDevice.copy, RuntimeDevice.copy_rows, RuntimeGraph.launch
    monkeypatch.setattr(RuntimeDevice, "copy", lambda self, *a, **k: (copies.append(a), plain(self, *a, **k))[1])
    monkeypatch.setattr(RuntimeDevice, "copy_rows", lambda self, *a: (copies.append(a), rows(self, *a))[1])
    monkeypatch.setattr(RuntimeGraph, "launch", lambda self, stream: (launches.append(self), launch(self, stream))[1])
    held = [tuple(Tensor(s, backend="cuda") for s in stacks) for stacks in STACKS] if on_device else STACKS
    scanned.scan(*held[0])  # step by step: kernels are loaded
    scanned.scan(*held[1])
    copies.clear()
    launches.clear()
    scanned.scan(*held[2])
    assert len(launches) == 1
    # Inputs are 512 bytes a batch, labels 64, which begin at multiples of 256: a copy each.
    assert len(copies) == (2 if on_device else 0)
    monkeypatch.undo()
    check_bits(make("cuda"), make("cuda"), (lambda s: Tensor(s, backend="cuda")) if on_device else lambda s: s)


@pytest.mark.parametrize("on_device", [False, True])
def test_inputs_of_another_dtype_are_cast_by_one_launch_ahead_of_the_graph(
    device: Device, on_device: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("cuda", amp="bfloat16").save(tmp_path)
    scanned, called = aicf.load(tmp_path), aicf.load(tmp_path)
    assert isinstance(scanned, Step) and isinstance(called, Step)
    takes, copies, take, copy = [], [], Intake.take, RuntimeDevice.copy_rows
    monkeypatch.setattr(Intake, "take", lambda self, *a: (takes.append(a), take(self, *a))[1])
    monkeypatch.setattr(RuntimeDevice, "copy_rows", lambda self, *a: (copies.append(a), copy(self, *a))[1])
    for number, stacks in enumerate(STACKS):
        held = tuple(Tensor(s, backend="cuda") for s in stacks) if on_device else stacks
        takes.clear()
        copies.clear()
        losses = scanned.scan(*held)
        # The first one is step by step. Inputs are 512 bytes a batch, 256 in bf16; labels are 64, which begin at multiples of 256.
        assert number == 0 or (len(takes), len(copies)) == (1, 1 if on_device else 0)
        assert losses.numpy().tolist() == run_each(called, stacks)


def test_a_loaded_step_scans_too(device: Device, tmp_path: Path) -> None:
    step = make("cuda")
    step.save(tmp_path)
    loaded = aicf.load(tmp_path)
    assert isinstance(loaded, Step)
    check_bits(loaded, step)


@pytest.mark.slow  # kernels in 16 bits, chains of dropout and a schedule
@pytest.mark.parametrize(("p", "options"), [(0.3, {"clip_norm": 0.5}), (0.0, {"amp": "bfloat16"})])
def test_whatever_a_step_does_a_scan_does(device: Device, p: float, options: dict[str, Any]) -> None:
    check_bits(make("cuda", p, **options), make("cuda", p, **options))


def test_what_is_no_stack_is_named() -> None:
    step, (x, y) = make("numpy"), STACKS[0]
    with pytest.raises(ValueError, match=r"x0: expected a stack of 8 of float32\[8,16\], one per run, got float32\[8,16\]"):
        step.scan(x[0], y[0])
    with pytest.raises(ValueError, match=r"x1: expected a stack of 5 of int64\[8\], one per run, got int64\[4,8\]"):
        step.scan(x, y[:4])
    with pytest.raises(ValueError, match=r"x1: expected a stack of 5 of int64\[8\], one per run, got None"):
        step.scan(x)
    with pytest.raises(ValueError, match=r"x0: expected a stack of N of float32\[8,16\], one per run, got float32\[0,8,16\]"):
        step.scan(x[:0], y[:0])
