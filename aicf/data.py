"""A data loader: batches of arrays in an order given by a seed, which can be resumed exactly where it stopped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class DataLoader:
    """Batches of arrays, or of memory-mapped files, of the same length.

    Every batch has ``batch`` rows: what is left at an epoch's end is left out, since plans are made for one shape. With ``shuffle`` an
    epoch's order is told by the seed and the epoch's number alone.
    """

    def __init__(self, arrays: Sequence[NDArray[Any]], *, batch: int, seed: int = 0, shuffle: bool = True) -> None:
        self.arrays = tuple(arrays)
        self.batch, self.seed, self.shuffle = batch, seed, shuffle
        self.epoch = self.position = 0
        lengths = {len(array) for array in self.arrays}
        if len(lengths) != 1:
            raise ValueError(f"arrays must have one length, got {', '.join(map(str, sorted(lengths))) or 'no array'}")
        self.length = lengths.pop()
        if not 1 <= batch <= self.length:
            raise ValueError(f"batch={batch}: must be at least 1 and at most the {self.length} rows available")

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return self.length // self.batch

    def __iter__(self) -> Iterator[tuple[NDArray[Any], ...]]:
        """Yield the rest of the present epoch; the next iteration begins the next one."""
        order = self._find_order()
        while self.position < len(self):
            rows = order[self.position * self.batch : (self.position + 1) * self.batch]
            self.position += 1  # a state that is taken while a batch is used goes on behind it
            yield tuple(np.asarray(array[rows]) for array in self.arrays)
        self.epoch, self.position = self.epoch + 1, 0

    def epochs(self, count: int) -> Iterator[tuple[NDArray[Any], ...]]:
        """Yield batches until ``count`` epochs are over, those before the present one included."""
        while self.epoch < count:
            yield from self

    def _find_order(self) -> NDArray[np.int64]:
        if not self.shuffle:
            return np.arange(self.length)
        return np.random.Generator(np.random.Philox(key=[self.seed, self.epoch])).permutation(self.length)

    def state_dict(self) -> dict[str, int]:
        """Return what :meth:`load_state_dict` takes."""
        return {"epoch": self.epoch, "position": self.position, "seed": self.seed}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on where a state was taken; raises ValueError for one of another seed."""
        if state["seed"] != self.seed:
            raise ValueError(f"the state has seed {state['seed']}, but this loader has seed {self.seed}")
        self.epoch, self.position = state["epoch"], state["position"]


def repeat(loader: Iterable[Sequence[Any]], count: int) -> Iterator[Sequence[Any]]:
    """Yield ``count`` batches, epoch after epoch; raises ValueError for a loader that has none."""
    left, empty = count, 0
    while left > 0:
        empty += 1
        if empty > 2:
            raise ValueError("the loader has no batch")
        for batch in loader:
            empty = 0
            yield batch
            left -= 1
            if left == 0:
                return
