"""Drawn problems without a GPU: the time model's estimate of what users get and of the op's own choice. Nothing is timed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from device.interface import Device
from harness.benchmark.session import Session
from harness.build.builder import BuildResult
from harness.build.disassemble import read_sass
from harness.build.sass import SassKernel
from harness.compare.drawn.contenders import build_contenders
from harness.model.features import Features, collect_features
from harness.model.time_model import load_machine, predict
from harness.spec import Launchable, Op, Problem
from harness.targets import Target

_FROZEN_NAME = re.compile("__[0-9a-f]{8}$")


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


def model_plan(
    session: Session, wanted: Sequence[tuple[Problem, Sequence[str]]], deadline: float, say: Callable[[str], None]
) -> Iterator[tuple[Problem, dict[str, float | None]]]:
    """Yield each problem with the modelled microseconds of its frozen kernels and variants by name.

    They are built as they are needed, as many at once as there are cores for; no problem is begun after ``deadline`` (monotonic seconds).
    """
    known: dict[str, Modelled] = {}
    for place, (problem, names) in enumerate(wanted):
        if time.monotonic() > deadline:
            return
        if any(n not in known for n in names):
            soon = dict.fromkeys(n for _, later in wanted[place:] for n in later if n not in known)
            known |= _build(session, list(soon)[: max(len(names), session.settings.jobs)], say)
        yield problem, {n: model_us(session.device, session.loaded.op, problem, known[n], session.target) for n in names}


def _build(session: Session, names: Sequence[str], say: Callable[[str], None]) -> dict[str, Modelled]:
    """Build frozen kernels and variants; the latter have a slash in their names, unless their kernels have no tunables."""
    frozen = [n for n in names if is_frozen_name(n)]
    contenders = build_contenders(session, frozen, [n for n in names if n not in frozen], say)
    opened = {**contenders.sealed, **contenders.variants}
    return {n: open_modelled(session, contenders.builds[n], launchable) for n, launchable in opened.items()}


def is_frozen_name(name: str) -> bool:
    """Return whether a name is a frozen kernel's, which ends in eight hexadecimal digits, and not a variant's."""
    return _FROZEN_NAME.search(name) is not None
