"""Which variants a sweep tries next: lists known beforehand, and Optuna's samplers, which learn from the measurements.

A sampler knows nothing of constraints. So what it suggests is moved to the nearest variant of the frozen space (:func:`list_space`) that
was not tried yet: a variant that the constraints forbid is never built or measured, and none is tried twice. Each kernel has tunables of
its own, thus a study of its own; kernels take turns, and one that stays far behind the best gets no more of them.

The order is a function of the seed and of the results alone, told in the order of the proposals
(:class:`harness.sweep.proposals.Proposals`): a sweep that goes on from its records proposes what it would have proposed.
"""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.spec import Kernel, Op, SpecError, Variant
from harness.sweep.space import list_space, order_grid, sample_space

if TYPE_CHECKING:
    import optuna

# A kernel whose best is this many times slower than the best of all, after this many variants that are not listed, is given up.
_FAR_BEHIND = 2.0
_LEAST_TRIED = 8
# TPE begins with this many variants at random; CMA-ES with one.
_NUM_STARTUP = 8


class StrategyName(StrEnum):
    """How variants are chosen: a sample of each kernel's space, all of it, or by Optuna's TPE or CMA-ES sampler."""

    RANDOM = "random"
    GRID = "grid"
    TPE = "tpe"
    CMAES = "cmaes"


@dataclass(frozen=True)
class Score:
    """What came of a variant: the mean logarithm of its microseconds over the problems it serves, None where it has no time.

    ``is_pruned`` says that its measurement was given up early, since it was far slower than the best.
    """

    log_us: float | None
    is_pruned: bool = False


class Strategy(Protocol):
    """Proposes variants, and is told what came of them in the order in which it proposed them."""

    is_adaptive: bool
    size: int

    def propose(self) -> Variant | None:
        """Return the next variant, None where there are no more."""
        ...

    def tell(self, variant: Variant, score: Score) -> None:
        """Take a result in."""
        ...


class ListStrategy:
    """Variants that are known beforehand."""

    is_adaptive = False

    def __init__(self, variants: Sequence[Variant]) -> None:
        self.size = len(variants)
        self._left = deque(variants)

    def propose(self) -> Variant | None:
        """Return the next variant of the list."""
        return self._left.popleft() if self._left else None

    def tell(self, variant: Variant, score: Score) -> None:
        """Learn nothing."""


class Space:
    """The variants of a kernel as points of a grid, each tunable's values in order; what was tried is crossed off."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.variants = list(list_space(kernel))
        self.sizes = [len(t.values) for t in kernel.tunables]
        places = [{value: i for i, value in enumerate(t.values)} for t in kernel.tunables]
        rows = [[place[value] for place, (_, value) in zip(places, v.values, strict=True)] for v in self.variants]
        self._rows: NDArray[np.int64] = np.array(rows, dtype=np.int64).reshape(len(rows), len(self.sizes))
        self._places = {v: i for i, v in enumerate(self.variants)}
        self._is_free = np.ones(len(rows), np.bool_)

    @property
    def num_free(self) -> int:
        """How many variants were not tried."""
        return int(np.count_nonzero(self._is_free))

    def find_row(self, variant: Variant) -> list[int]:
        """Return the places of a variant's values."""
        return [int(i) for i in self._rows[self._places[variant]]]

    def take(self, variant: Variant) -> None:
        """Cross a variant off."""
        self._is_free[self._places[variant]] = False

    def take_nearest(self, wanted: Sequence[float]) -> Variant:
        """Return the free variant that is nearest to a point, each axis scaled to 0..1, and cross it off; the first of several."""
        scale = np.maximum(np.array(self.sizes) - 1, 1)
        distances = (np.abs(self._rows - np.asarray(wanted, dtype=np.float64)) / scale).sum(axis=1)
        index = int(np.argmin(np.where(self._is_free, distances, np.inf)))
        self._is_free[index] = False
        return self.variants[index]


class _KernelStudy:
    """One kernel's turns: its listed variants first, then what the sampler suggests."""

    def __init__(self, kernel: Kernel, sampler: optuna.samplers.BaseSampler, budget: int, *, moves_trials: bool) -> None:
        import optuna

        self.space = Space(kernel)
        self.best = math.inf
        self.num_tried = 0
        self._listed = deque(kernel.bind(bound) for bound in kernel.variants)
        self.budget = min(max(budget, len(self._listed)), len(self.space.variants))
        self._moves_trials = moves_trials
        self._study = optuna.create_study(sampler=sampler)
        names = [t.name for t in kernel.tunables]
        self._distributions: dict[str, Any] = {
            name: optuna.distributions.IntDistribution(0, size - 1) for name, size in zip(names, self.space.sizes, strict=True)
        }
        self._trials: dict[Variant, optuna.Trial] = {}

    def propose(self) -> Variant | None:
        if self.num_tried >= self.budget or not self.space.num_free:
            return None
        self.num_tried += 1
        if self._listed:
            variant = self._listed.popleft()
            self.space.take(variant)
            return variant
        trial = self._study.ask(self._distributions)
        variant = self.space.take_nearest([trial.params[name] for name in self._distributions])
        self._trials[variant] = trial
        return variant

    def tell(self, variant: Variant, score: Score) -> None:
        from optuna.trial import TrialState, create_trial

        self.best = min(self.best, math.inf if score.log_us is None else score.log_us)
        trial = self._trials.pop(variant, None)
        failed = score.log_us is None
        if trial is not None:
            # CMA-ES knows its trials again by what it noted in them. To TPE the variant that was tried is told in place of the wish.
            as_asked = not failed and not self._moves_trials
            self._study.tell(trial, score.log_us if as_asked else None, TrialState.COMPLETE if as_asked else TrialState.FAIL)
        if failed or not (self._moves_trials or trial is None):
            return
        params = dict(zip(self._distributions, self.space.find_row(variant), strict=True))
        pruned: dict[str, Any] = {"state": TrialState.PRUNED, "intermediate_values": {0: score.log_us}}
        state = pruned if score.is_pruned else {"state": TrialState.COMPLETE, "value": score.log_us}
        self._study.add_trial(create_trial(params=params, distributions=self._distributions, **state))

    def is_behind(self, best: float) -> bool:
        return self.num_tried >= _LEAST_TRIED and self.best > best + math.log(_FAR_BEHIND)


class OptunaStrategy:
    """Optuna's sampler ``name`` over each kernel's space, ``per_kernel`` variants at most of each, the listed ones among them.

    With ``trials``, so many of all kernels together at most.
    """

    is_adaptive = True

    def __init__(self, op: Op, name: StrategyName, per_kernel: int, seed: int, trials: int | None = None) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        studies = []
        for index, kernel in enumerate(op.kernels):
            sampler = _make_sampler(name, kernel, seed + index)
            studies.append(_KernelStudy(kernel, sampler, per_kernel, moves_trials=name is StrategyName.TPE))
        budget = sum(s.budget for s in studies)
        self.size = budget if trials is None else min(trials, budget)
        self._num_proposed = 0
        self._studies = {s.space.kernel.name: s for s in studies}
        self._turns = deque(studies)

    def propose(self) -> Variant | None:
        """Return the next variant of the kernel whose turn it is."""
        best = min(s.best for s in self._studies.values())
        while self._turns and self._num_proposed < self.size:
            study = self._turns.popleft()
            if not study.is_behind(best) and (variant := study.propose()) is not None:
                self._turns.append(study)
                self._num_proposed += 1
                return variant
        return None

    def tell(self, variant: Variant, score: Score) -> None:
        """Take a result in."""
        self._studies[variant.kernel].tell(variant, score)


def _make_sampler(name: StrategyName, kernel: Kernel, seed: int) -> optuna.samplers.BaseSampler:
    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        # CMA-ES has nothing to adapt in fewer than two dimensions.
        if name is StrategyName.CMAES and sum(len(t.values) > 1 for t in kernel.tunables) > 1:
            return optuna.samplers.CmaEsSampler(seed=seed, with_margin=True, warn_independent_sampling=False)
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=_NUM_STARTUP, multivariate=True, constant_liar=True)


def make_strategy(op: Op, name: StrategyName, per_kernel: int, seed: int, trials: int | None = None) -> Strategy:
    """Return a strategy over an op's space; ``trials`` bounds the variants of all kernels together, in place of ``per_kernel``.

    Raises SpecError for ``trials`` of a grid, which is the whole space.
    """
    if name is StrategyName.GRID:
        if trials is not None:
            raise SpecError("--strategy grid tries every legal variant: --trials goes with random, tpe and cmaes")
        return ListStrategy(order_grid(op))
    if name is StrategyName.RANDOM:
        return ListStrategy(sample_space(op, per_kernel) if trials is None else order_grid(op)[:trials])
    return OptunaStrategy(op, name, per_kernel if trials is None else trials, seed, trials)
