"""Drawn problems without a GPU: the time model's estimate of what users get and of the op's own choice. Nothing is timed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from device.interface import Device
from harness.build.builder import BuildResult
from harness.build.disassemble import read_sass
from harness.build.sass import SassKernel
from harness.model.features import Features, collect_features
from harness.model.time_model import load_machine, predict
from harness.session import Session
from harness.spec import Launchable, Op, Problem
from harness.targets import Target


@dataclass(frozen=True)
class Modelled:
    """A kernel that can be modelled: its build, opened, with its machine code's instructions."""

    build: BuildResult
    launchable: Launchable
    sass: Mapping[str, SassKernel]


def open_modelled(session: Session, build: BuildResult, launchable: Launchable) -> Modelled:
    """Read what the model needs of a build."""
    assert build.library is not None
    return Modelled(build, launchable, {k.name: k for k in read_sass(build.library, session.toolchain)})


def model_us(device: Device, op: Op, problem: Problem, kernel: Modelled, target: Target) -> float | None:
    """Return a kernel's modelled microseconds on a problem, None where it does not serve it."""
    ((_, found),) = collect_features(device, op, problem, [(kernel.build, kernel.launchable, kernel.sass)], target)
    return predict(found, target, load_machine(target.name)).time_us if isinstance(found, Features) else None


def model_all(
    session: Session, wanted: Sequence[tuple[Problem, Sequence[str]]], kernels: Mapping[str, Modelled], seconds: float
) -> Iterator[tuple[Problem, dict[str, float | None]]]:
    """Yield each problem with the modelled microseconds of its kernels by name; none is begun when the seconds are spent."""
    started = time.monotonic()
    for problem, names in wanted:
        if time.monotonic() - started > seconds:
            return
        op, target = session.loaded.op, session.target
        yield problem, {n: model_us(session.device, op, problem, kernels[n], target) for n in names if n in kernels}
