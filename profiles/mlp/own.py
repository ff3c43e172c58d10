"""AICF's training steps: one plan, replayed as one graph."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from cases import CHECKED_STEPS, RATE, SCANNED, Case, time_step

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from device import open_device


def _make_model(case: Case) -> nn.Module:
    layers: list[nn.Module] = []
    for weight, bias in case.make_weights():
        layer = nn.Linear(weight.shape[1], weight.shape[0])
        with aicf.no_grad():
            layer.weight.copy_(Tensor(weight))
            layer.bias.copy_(Tensor(bias))
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def measure(case: Case, seconds: float, few: bool = False, tune_seconds: float = 0.0) -> dict[str, Any]:
    """Return the contenders' figures by name, and what else is told of the plan; of these two contenders, few is all."""
    del few
    device = open_device()
    model, batches = _make_model(case), case.make_batches()
    optimizer = optim.Adam(model.parameters(), lr=RATE)
    started = time.perf_counter()
    step = aicf.compile_step(
        model,
        lambda m, x, y: F.cross_entropy(m(x), y),
        optimizer,
        [Tensor(a) for a in batches[0]],
        backend="cuda",
        amp=None if case.dtype == "float32" else case.dtype,
        tune_seconds=tune_seconds,
    )
    held = [tuple(Tensor(a, backend="cuda") for a in batch) for batch in batches]
    losses = [step(*held[0]).item()]
    first_s = time.perf_counter() - started
    losses += [step(*held[i % len(held)]).item() for i in range(1, CHECKED_STEPS)]
    found = time_step(lambda i: step(*held[i % len(held)]), device.synchronize, seconds)
    replayed = bool(step.verify_replay(20))
    profile = [] if device.is_emulated else [str(row) for row in step.profile()]
    plan = {"plan": step.plan.to_lines(), "profile": profile, "replay_is_stepwise": replayed, "log": [str(e) for e in step.log]}
    row = {**found, "first_s": first_s, "losses": losses, "launches": len(step.plan.steps)}
    return {"aicf compile_step": row, f"aicf scan over {SCANNED}": {**row, **_time_scan(step, batches, seconds)}, "plan": plan}


def _time_scan(step: aicf.train.Step, batches: list[tuple[np.ndarray, np.ndarray]], seconds: float) -> dict[str, Any]:
    """Return the times of a step of many that are one launch, on batches that are stacked on the device."""
    stacks = [Tensor(np.stack([batches[i % len(batches)][part] for i in range(SCANNED)]), backend="cuda") for part in range(2)]
    step.scan(*stacks)
    found = time_step(lambda i: step.scan(*stacks), open_device().synchronize, seconds)
    return {name: value / SCANNED for name, value in found.items()}


def measure_inference(case: Case, seconds: float) -> dict[str, Any]:
    """Return the contender's figures by name, with its outputs; bf16: parameters, inputs and outputs are."""
    device = open_device()
    model = _make_model(case)
    inputs = [Tensor(x) for x, _ in case.make_batches()]
    if case.dtype == "bfloat16":
        for _, layer in model.modules():
            if isinstance(layer, nn.Linear):
                assert layer.bias is not None
                layer.weight = nn.Parameter(layer.weight.cast(case.dtype).numpy())
                layer.bias = nn.Parameter(layer.bias.cast(case.dtype).numpy())
        inputs = [x.cast(case.dtype) for x in inputs]
    held = [Tensor(x.numpy(), backend="cuda") for x in inputs]
    started = time.perf_counter()
    program = aicf.compile(model, [held[0]], backend="cuda")
    outputs = program(held[0]).numpy().astype(np.float32)
    first_s = time.perf_counter() - started
    found = time_step(lambda i: program(held[i % len(held)]), device.synchronize, seconds)
    profile = [] if device.is_emulated else [str(row) for row in program.profile()]
    plan = {"plan": program.plan.to_lines(), "profile": profile}
    row = {**found, "first_s": first_s, "norm": float(np.linalg.norm(outputs)), "launches": len(program.plan.steps)}
    return {"aicf compile": row, "plan": plan}


def describe() -> dict[str, Any]:
    """Return device and driver."""
    properties = open_device().properties
    return {"device": properties.name, "driver": properties.driver_version, "numpy": np.__version__}
