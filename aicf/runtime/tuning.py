"""Choosing kernels by their times in a plan's own buffers, when it is compiled: never while it runs.

Medians are kept in the cache, by GPU, driver and kernel's seal: what was measured once is not measured again.
"""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from aicf.backends.calls import FrozenCall
from aicf.backends.frozen import FAILURES, open_calls
from aicf.opset import Attrs, Type
from aicf.passes.context import Choice
from aicf.plan import Plan, Step
from aicf.runtime.chooser import make_choice
from aicf.runtime.device import DeviceExecutor
from contract.files import write_atomically
from device import Device, UnavailableError, open_device
from device.settings import read_settings


class Timer(Protocol):
    """Runs and times a plan's steps: a :class:`~aicf.runtime.device.DeviceExecutor` on a GPU."""

    plan: Plan

    def reach(self, index: int) -> None:
        """Run the steps before one."""

    def time_call(self, index: int, call: FrozenCall) -> list[float]:
        """Return times of a step by a kernel, in microseconds."""


class Kernels(Protocol):
    """Knows the kernels: :class:`~aicf.backends.frozen.FrozenCalls`."""

    def list_seals(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> list[str]:
        """Return the seals of the kernels that serve a call."""

    def find_sealed(self, op: str, types: Sequence[Type | None], attrs: Attrs, seal: str) -> FrozenCall:
        """Return a call with the kernel of a seal."""

    def refuse(self, call: FrozenCall, error: Exception) -> str:
        """Leave a kernel out from now on, that cannot be used here."""


class Medians:
    """Measured times of one GPU and driver, in microseconds, by call and seal, kept as a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, dict[str, float]] = {}
        if path.is_file():
            try:
                self._known = json.loads(path.read_text())
            except ValueError:
                self._known = {}  # they can be measured again

    @classmethod
    def of(cls, device: Device) -> Medians:
        """Return those of a device, in the cache."""
        facts = device.properties
        name = re.sub(r"\W+", "-", f"{facts.name} driver {facts.driver_version} runtime {facts.runtime_version}")
        return cls(read_settings().cache_dir / "tuned" / f"{name}.json")

    def find(self, key: str, seal: str) -> float | None:
        """Return a kernel's time on a call, None where it was not measured."""
        return self._known.get(key, {}).get(seal)

    def add(self, key: str, seal: str, us: float) -> None:
        """Keep a time."""
        self._known.setdefault(key, {})[seal] = us

    def save(self) -> None:
        """Write the file, with what others have added to it meanwhile."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        others = Medians(self._path)._known
        merged = {key: others.get(key, {}) | self._known.get(key, {}) for key in sorted({*others, *self._known})}
        write_atomically(self._path, json.dumps(merged, indent=1) + "\n")


class Bench:
    """A GPU, and the states and inputs on which plans are timed.

    Raises :class:`~device.UnavailableError` on the emulated device.
    """

    def __init__(self, states: Mapping[tuple[str, str], Any], inputs: Sequence[Any], seconds: float, *, deterministic: bool) -> None:
        self._device = open_device()
        if self._device.is_emulated:
            raise UnavailableError(
                f"tune_seconds={seconds:g}: the emulated device has no time to choose kernels by; leave it 0, where the registry's "
                "measured medians and models decide, or compile on a GPU"
            )
        self._states, self._inputs, self._seconds = states, inputs, seconds
        self._calls = open_calls(deterministic=deterministic)

    def _open(self, plan: Plan) -> DeviceExecutor:
        executor = DeviceExecutor(plan)
        self._reset(executor)
        return executor

    def _reset(self, executor: DeviceExecutor) -> None:
        executor.load_states(self._states)
        executor.put(self._inputs)

    def choose_kernels(self, plan: Plan) -> tuple[dict[int, Choice], list[str]]:
        """Return other kernels for a plan's nodes that are faster, by node id; and what decided, a line per call."""
        executor = self._open(plan)
        calls, said = tune(executor, self._calls, Medians.of(self._device), self._seconds, lambda: self._reset(executor))
        reason = "the least time measured in the plan's buffers"
        return {plan.steps[i].node: replace(make_choice(call), predicted_us=us, reason=reason) for i, (call, us) in calls.items()}, said

    def time_steps(self, plan: Plan) -> list[float]:
        """Return each step's time in microseconds; in their order, so that each reads what it reads in a run."""
        executor = self._open(plan)
        return [executor.time_step(i) for i in range(len(plan.steps))]

    def time_run(self, plan: Plan) -> float:
        """Return the median time of a replay in microseconds."""
        return statistics.median(self._open(plan).time_run())


def tune(
    timer: Timer,
    kernels: Kernels,
    medians: Medians,
    seconds: float,
    reset: Callable[[], None],
    clock: Callable[[], float] = time.monotonic,
) -> tuple[dict[int, tuple[FrozenCall, float]], list[str]]:
    """Return the fastest kernel for each step by index where that is not the plan's own, with its time; and what decided, a line per call.

    Calls that are expected to take longest come first. After ``seconds`` those that are left keep their kernels, and it is said. ``reset``
    puts inputs and states in place: steps change them.
    """
    plan, end = timer.plan, clock() + seconds
    chosen: dict[int, tuple[FrozenCall, float]] = {}
    said: list[str] = []
    groups = _group(plan.steps)
    for number, (key, places) in enumerate(groups):
        if clock() >= end:
            said.append(f"the {seconds:g} s are over: {len(groups) - number} of {len(groups)} calls keep their kernels")
            break
        times = dict(_measure(timer, kernels, medians, key, places[0], reset, lambda: clock() >= end))
        step = plan.steps[places[0]]
        if step.seal not in times or len(times) < 2:
            continue
        best = min(times, key=lambda seal: (times[seal], seal != step.seal))
        call = kernels.find_sealed(step.op, _list_types(step), step.attrs, best)
        place = f"{step.op} of {step.owner or '-'}"
        said.append(f"{place}: {call.handle.kernel} {times[best]:.2f} us, the least of {len(times)}; {times[step.seal]:.2f} before")
        if best != step.seal:
            chosen |= dict.fromkeys(places, (call, times[best]))
    medians.save()
    return chosen, said


def _measure(
    timer: Timer, kernels: Kernels, medians: Medians, key: str, index: int, reset: Callable[[], None], is_over: Callable[[], bool]
) -> Iterator[tuple[str, float]]:
    """Yield seals and medians of the kernels that serve a step, its own first, until time is over."""
    step = timer.plan.steps[index]
    types = _list_types(step)
    is_reached = False
    for seal in sorted(kernels.list_seals(step.op, types, step.attrs), key=lambda seal: seal != step.seal):
        us = medians.find(key, seal)
        if us is None:
            if is_over():
                return
            call = kernels.find_sealed(step.op, types, step.attrs, seal)
            try:
                call.handle.load()
            except FAILURES as error:
                kernels.refuse(call, error)
                continue
            if not is_reached:
                reset()
                timer.reach(index)
                is_reached = True
            us = statistics.median(timer.time_call(index, call))
            medians.add(key, seal, us)
        yield seal, us


def _group(steps: Sequence[Step]) -> list[tuple[str, list[int]]]:
    """Return the steps that have a kernel by what they call, those first that are expected to take longest in all."""
    groups: dict[str, list[int]] = {}
    for i, step in enumerate(steps):
        if step.seal:
            groups.setdefault(_name_call(step), []).append(i)
    return sorted(groups.items(), key=lambda group: -sum(steps[i].predicted_us or 0.0 for i in group[1]))


def _name_call(step: Step) -> str:
    return json.dumps([step.op, [None if t is None else str(t) for t in _list_types(step)], sorted(step.attrs.items())])


def _list_types(step: Step) -> list[Type | None]:
    return [None if slot is None else slot.type for slot in step.inputs]
