"""A strategy's proposals and their results in step, across threads: the next proposal depends on results alone, not on who was faster."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from harness.spec import Variant
from harness.sweep.strategies import Score, Strategy

# Of an adaptive strategy's variants at most this share is proposed before the first result is known: with as many compilers as variants
# there would be nothing left to learn for.
_BLIND_SHARE, _MIN_LAG = 0.25, 4


def limit_lag(wanted: int, num_variants: int) -> int:
    """Return how many variants compilers and GPUs may be ahead of the results, where they could work on ``wanted``."""
    return min(wanted, max(_MIN_LAG, int(_BLIND_SHARE * num_variants)))


class Proposals:
    """Iterated by the thread that builds, told by those that measure.

    An adaptive strategy proposes its k-th variant when the first k - ``lag`` results are known, and these alone: later ones wait, even
    where they are there already. So compilers and GPU have ``lag`` variants to work on, and the order can be repeated from records.
    """

    def __init__(self, strategy: Strategy, lag: int) -> None:
        self._strategy = strategy
        self._lag = max(1, lag)
        self._proposed: list[Variant] = []
        self._results: dict[Variant, Score] = {}
        self._num_told = 0
        self._is_closed = False
        self._changed = threading.Condition()

    def __iter__(self) -> Iterator[Variant]:
        while (variant := self._find_next()) is not None:
            yield variant

    def _find_next(self) -> Variant | None:
        while self._strategy.is_adaptive and self._num_told <= len(self._proposed) - self._lag:
            variant = self._proposed[self._num_told]
            with self._changed:
                self._changed.wait_for(lambda variant=variant: variant in self._results or self._is_closed)  # type: ignore[misc]
                if self._is_closed:
                    return None
            self._strategy.tell(variant, self._results[variant])
            self._num_told += 1
        with self._changed:
            if self._is_closed:
                return None
        found = self._strategy.propose()
        if found is not None:
            self._proposed.append(found)
        return found

    def tell(self, variant: Variant, score: Score) -> None:
        """Take the result of a proposed variant in."""
        with self._changed:
            self._results[variant] = score
            self._changed.notify_all()

    def close(self) -> None:
        """Propose no more, now."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
