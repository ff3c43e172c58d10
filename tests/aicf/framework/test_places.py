"""Copies that follow each other in memory are one launch, and no others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.opset import Type
from aicf.plan import Slot, Step
from aicf.rewrite import Run
from aicf.runtime.places import find_joined
from device import Device

ROW = Type("float32", (128,))


def copy(buffer: int, source: int, target: int) -> Step:
    return Step(buffer, "Copy", {}, (Slot(buffer, "arena", source, ROW),), (Slot(buffer + 100, "state", target, ROW),))


def test_copies_without_gaps_are_joined() -> None:
    steps = [copy(0, 512, 1024), copy(1, 1024, 1536), copy(2, 1536, 2048)]
    assert find_joined(steps) == [[0, 1, 2]]
    assert find_joined([steps[0], steps[2], steps[1]]) == []
    assert find_joined([steps[0], replace(steps[1], op="elementwise"), steps[1], steps[2]]) == [[2, 3]]


@pytest.mark.parametrize(
    "second",
    [
        copy(1, 1280, 1536),  # a gap on one side, or on both
        copy(1, 1280, 1792),
        replace(copy(1, 1024, 1536), stream=1),
        replace(copy(1, 1024, 1536), waits=(0,)),
        Step(1, "Copy", {}, (Slot(1, "state", 1024, ROW),), (Slot(101, "state", 1536, ROW),)),
    ],
)
def test_other_copies_stay_apart(second: Step) -> None:
    first = replace(copy(0, 512, 1024), inputs=(Slot(0, next(second.reads).region, 512, ROW),))
    assert find_joined([first, second]) == []


@pytest.mark.slow
def test_the_ring_of_observers_is_brought_into_place_by_one_copy(device: Device) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    batch = Tensor(np.ones((16, 6), np.float32), backend="cuda"), Tensor(np.zeros(16, np.int64), backend="cuda")
    optimizer = optim.Adam(model.parameters(), 1e-2)
    step = aicf.compile_step(model, lambda m, x, y: F.cross_entropy(m(x), y), optimizer, batch, clip_norm=1.0, backend="cuda")
    run = Run(step, every=2)
    copies = [i for i, each in enumerate(run.step.plan.steps) if each.op == "Copy"]
    assert len(copies) == 3 and find_joined(run.step.plan.steps) == [copies]
    assert len(run.fit([batch], 11)) == 11 and len({o.loss for o in run.log.losses}) == 11
