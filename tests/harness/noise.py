"""Times as a GPU gives them: drifting, autocorrelated, two-valued and interrupted, with a difference between contenders that is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.timing.verdicts import plan_round


@dataclass(frozen=True)
class Noise:
    """Relative sizes. ``drift`` over 1000 launches; ``wander`` is correlated by ``memory``; ``step`` is that of a clock that ``flip``s."""

    white: float = 0.006
    wander: float = 0.004
    memory: float = 0.995
    step: float = 0.0
    flip: float = 0.01
    drift: float = 0.0
    outliers: float = 0.005

    def make(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Return the factors of ``count`` launches that follow each other."""
        log = self.white * rng.standard_normal(count) + self.drift * np.arange(count) / 1000
        steps = self.wander * np.sqrt(1 - self.memory**2) * rng.standard_normal(count)
        walk = np.empty(count)
        state = self.wander * rng.standard_normal()
        for i, step in enumerate(steps):
            state = self.memory * state + step
            walk[i] = state
        log += walk + self.step * (np.cumsum(rng.random(count) < self.flip) % 2)
        log += np.where(rng.random(count) < self.outliers, rng.exponential(0.3, count), 0.0)
        return np.exp(log)


NOISES = {
    "white": Noise(wander=0.0),
    "wandering": Noise(wander=0.02),
    "two clocks": Noise(step=0.03),
    "two clocks at random": Noise(step=0.02, flip=0.5),
    "drifting": Noise(drift=0.1, wander=0.01),
    "interrupted": Noise(outliers=0.05),
}


def make_rounds(rng: np.random.Generator, noise: Noise, times_us: Sequence[float], num_rounds: int) -> NDArray[np.float64]:
    """Return [rounds, contenders, 2] times of contenders that are timed as A B ... B A, the order rotated from round to round."""
    count = len(times_us)
    factors = noise.make(rng, num_rounds * 2 * count).reshape(num_rounds, 2 * count)
    rounds = np.empty((num_rounds, count, 2))
    for i in range(num_rounds):
        seen = [0] * count
        for place, contender in enumerate(plan_round(count, i)):
            rounds[i, contender, seen[contender]] = times_us[contender] * factors[i, place]
            seen[contender] += 1
    return rounds
