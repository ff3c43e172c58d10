"""Measuring candidates against a bucket's incumbent, interleaved in one process, on the bucket's problems."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from contract.building import compile_kernel, find_other_code
from contract.index import Index, Row
from contract.kernels import read_kernel
from harness.benchmark.session import Session
from harness.build.builder import BuildResult
from harness.build.sealed import SealedVariant
from harness.compare.variants import Held, Side, hold_contest
from harness.errors import FrozenError
from harness.freezing.decide.ruling import share_error
from harness.records.database import Records
from harness.spec import Problem
from harness.timing.timer import Mode, Timer
from harness.timing.verdicts import Criteria, Outcome
from harness.verify.reference import Expected


@dataclass(frozen=True)
class Match:
    """What came of one problem of a bucket: a contest, or why there was none. ``names`` are the sides', the incumbent first."""

    held: Held
    names: tuple[str, ...]

    @property
    def problem(self) -> Problem:
        """The problem."""
        return self.held.problem

    @property
    def mode(self) -> Mode:
        """What is in the caches when a launch starts."""
        return self.held.mode

    def _place(self, name: str) -> int | None:
        """Return where a side stands among the contenders, None where it was not served."""
        if self.held.contest is None or name not in self.held.contest.names:
            return None
        return self.held.contest.names.index(name)

    def find_outcome(self, name: str) -> Outcome | str:
        """Return a challenger's outcome, or why it has none."""
        place = self._place(name)
        if place is None or self.held.contest is None:
            return self._explain(name)
        if fault := self.held.faults[0] or self.held.faults[place]:
            return fault
        if self.held.contest.is_void:
            return f"void: the incumbent differs from its own copy by {self.held.contest.control.describe()}"
        return self.held.contest.outcomes[place - 2]

    def find_fault(self, name: str) -> str:
        """Return what is wrong with a side's own measurement, "" where nothing is."""
        place = self._place(name)
        return self._explain(name) if place is None else self.held.faults[place]

    def _explain(self, name: str) -> str:
        """Return why a side was not timed: without the first side nobody is."""
        return f"not measured: {self.held.not_served.get(name) or f'{self.names[0]} does not serve it'}"

    def find_median_us(self, name: str) -> float | None:
        """Return a side's median, None where it has none."""
        place = self._place(name)
        return None if place is None or self.held.contest is None else float(np.median(self.held.contest.times_us[:, place]))

    def find_record(self, name: str, records: Records) -> str:
        """Return the uid of a side's record."""
        place = self._place(name)
        return "" if place is None else records.read_result(self.held.record_ids[place]).uid

    def to_json(self, records: Records) -> dict[str, Any]:
        """Return what evidence keeps of it: every sample, with the clock of each."""
        contest = self.held.contest
        if contest is None:
            empty: dict[str, list[Any]] = {key: [] for key in ("contenders", "records", "median_us", "times_us", "clocks_mhz")}
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.held.not_served.items())
            return {"problem": self.problem.name, "mode": self.mode.value, "verdict": f"not held: {reasons}", "is_void": False} | empty
        figures = contest.to_figures(0)
        return {
            "problem": self.problem.name,
            "mode": self.mode.value,
            "contenders": list(contest.names),
            "records": [records.read_result(i).uid for i in self.held.record_ids],
            "median_us": [_round(float(np.median(contest.times_us[:, i]))) for i in range(len(contest.names))],
            "verdict": ", ".join(o.verdict.value for o in contest.outcomes),
            "effect": {n: _round_all(vars(o.effect)) for n, o in zip(contest.names[2:], contest.outcomes, strict=True)},
            "control": _round_all(figures["control"]),
            "is_void": contest.is_void,
            "num_throttled": contest.num_throttled,
            "times_us": [[_round(float(t)) for t in contest.times_us[:, i].ravel()] for i in range(len(contest.names))],
            "clocks_mhz": [
                [None if math.isnan(c) else _round(float(c)) for c in contest.clocks_mhz[:, i].ravel()] for i in range(len(contest.names))
            ],
        }


def _round(value: float) -> float:
    return float(f"{value:.6g}")


def _round_all(values: Any) -> dict[str, float]:
    return {k: _round(float(v)) for k, v in values.items()}


@dataclass
class ContestRunner:
    """Holds the contests of one promotion. Close it, or use it as a context manager.

    ``expect`` is that of :func:`harness.compare.variants.hold_contest`.
    """

    session: Session
    frozen: Index
    timer: Timer
    criteria: Criteria
    mode: Mode = Mode.COLD
    budget_s: float = 20.0
    expect: Callable[[Problem], Expected] | None = None
    _stack: ExitStack = field(default_factory=ExitStack)
    _libraries: dict[str, Path] = field(default_factory=dict)

    def __enter__(self) -> ContestRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def build_incumbents(self, entries: Sequence[Row]) -> None:
        """Build the kernels of entries side by side, each once: contests hold up the GPU, and a compiler does not."""
        names = list(dict.fromkeys(e["kernel"] for e in entries))
        with ThreadPoolExecutor(self.session.settings.jobs) as pool:
            list(pool.map(self._build_sealed, names))

    def hold(self, problems: Sequence[Problem], incumbent: Row | None, candidates: Sequence[tuple[BuildResult, Path]]) -> list[Match]:
        """Hold one contest per problem; without an incumbent the first candidate is timed against the others, or against its own copy.

        The error of the criteria is shared among the problems. Every problem has its match: one without a contest, because a side does
        not serve it, says so, and keeps the incumbent.
        """
        sides = [Side(b.variant.name, self.session.loaded.op, b, binding) for b, binding in candidates]
        if incumbent is not None:
            sides.insert(0, self._open_incumbent(incumbent, candidates[0][1]))
        elif len(sides) == 1:
            copy = Side(f"{sides[0].name} (copy)", sides[0].op, sides[0].build, sides[0].binding)
            sides.append(copy)
        folder = Path(self._stack.enter_context(TemporaryDirectory()))
        opened = []
        for i, side in enumerate([sides[0], *sides]):
            assert side.build.library is not None
            library = folder / f"{i}.so"  # of its own even where two are the same file: the same code at another address
            shutil.copyfile(side.build.library, library)
            opened.append(side.open(library))
        names = tuple(s.name for s in sides)
        criteria = share_error(self.criteria, len(problems))
        held = [hold_contest(self.session, self.timer, sides, opened, p, self.mode, criteria, self.budget_s, self.expect) for p in problems]
        return [Match(h, names) for h in held]

    def _open_incumbent(self, entry: Row, binding: Path) -> Side:
        kernel = read_kernel(self.frozen.folder, entry["kernel"])
        library = self._build_sealed(entry["kernel"])
        variant = SealedVariant(entry["kernel"], suffix=entry["kernel"])
        flags = " ".join(kernel.manifest["build"]["flags"])
        build = BuildResult(variant, library, kernel.machine_code, entry["seal"], None, None, 0.0, cached=False, flags=flags)
        return Side(entry["kernel"], self.session.loaded.op, build, binding)

    def _build_sealed(self, name: str) -> Path:
        """Build a frozen kernel from its sealed sources, once; it must come out with the machine code that its manifest pins."""
        if name not in self._libraries:
            kernel = read_kernel(self.frozen.folder, name)
            library = compile_kernel(kernel, self.session.toolchain, Path(self._stack.enter_context(TemporaryDirectory())))
            if fault := find_other_code(kernel, library):
                raise FrozenError(f"the incumbent {name} cannot be measured: {fault}")
            self._libraries[name] = library
        return self._libraries[name]
