"""Regret: how much longer the chosen kernel takes than the fastest frozen one that was timed, as a share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from contract.decision import DecisionCore, How, open_core
from harness.errors import FrozenUseError
from harness.surveys.fitting import Measured, TimesRow, ask, fit_measured

NUM_FOLDS = 10


@dataclass(frozen=True)
class Summary:
    """Of regrets as shares: how many are known, their mean, 95th percentile and greatest, and how many choices were the fastest kernel."""

    problems: int
    mean: float
    p95: float
    max: float
    best_chosen: int

    @classmethod
    def of(cls, regrets: Sequence[float | None] | NDArray[np.float64]) -> Summary:
        """Return that of regrets, None or NaN where one is not known; raises :class:`FrozenUseError` where none is."""
        given = np.asarray(regrets, np.float64)
        found = given[~np.isnan(given)]
        if not len(found):
            raise FrozenUseError("no problem was timed, so that no choice can be judged")
        return cls(len(found), float(found.mean()), float(np.percentile(found, 95)), float(found.max()), int((found == 0.0).sum()))

    def describe(self) -> str:
        """Return the mean, the 95th percentile and the greatest, in words."""
        return f"mean {100 * self.mean:.2f} %, 95th percentile {100 * self.p95:.1f} %, greatest {100 * self.max:.0f} %"


def choose(core: DecisionCore, row: TimesRow) -> tuple[str, How]:
    """Return the kernel that is chosen for a row's problem, and the step of the decision that found it.

    Raises :class:`FrozenUseError` where no kernel serves it.
    """
    asked = ask(core, row)
    found = core.decide(asked, asked.legal)
    if found is None:
        raise FrozenUseError(f"{core.table.names.op}: no frozen kernel for {core.table.arch} serves {dict(row['sizes'])}")
    return core.table.kernels[found.kernel], found.how


def find_regret(times_us: Mapping[str, float], chosen: str) -> float | None:
    """Return how much longer the chosen kernel takes than the fastest, as a share; None where it was not timed."""
    return times_us[chosen] / min(times_us.values()) - 1.0 if chosen in times_us else None


def judge(core: DecisionCore, rows: Sequence[TimesRow]) -> NDArray[np.float64]:
    """Return the regrets of the choices for rows of times, among the kernels that could be chosen; NaN where the chosen was not timed.

    Variants that were timed beside them and are not frozen say what the set lacks, and nothing of the choice.
    """
    kernels = set(core.table.kernels)
    known = [{name: us for name, us in row["times_us"].items() if name in kernels} for row in rows]
    return np.array([find_regret(times, choose(core, row)[0]) for times, row in zip(known, rows, strict=True)], np.float64)


def cross_validate(measured: Measured, *, at_home: bool = False, finer: bool = True, heeds_far: bool = False) -> NDArray[np.float64]:
    """Return by row the regret of the choice by a survey that was fitted without the row's tenth; NaN where the chosen was not timed.

    ``at_home``, ``finer`` and ``heeds_far`` are as for :func:`harness.surveys.fitting.fit_survey`.
    """
    rows, arch = measured.rows, measured.core.table.arch
    fold = np.random.default_rng(0).permutation(len(rows)) % NUM_FOLDS
    regrets = np.full(len(rows), np.nan)
    for number in range(NUM_FOLDS):
        facts = {"device": measured.device, "record": ""}
        survey = fit_measured(measured, fold != number, facts, at_home=at_home, finer=finer, heeds_far=heeds_far)
        core = open_core(replace(measured.frozen, surveys={arch: survey}), arch)
        held = np.flatnonzero(fold == number)
        regrets[held] = judge(core, [rows[i] for i in held.tolist()])
    return regrets
