"""Copies of parameters in another dtype, that a plan keeps beside them: they must be what the parameters are, whoever wrote these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.backends import Backend
from aicf.opset import find_dtype
from aicf.plan import Plan
from aicf.runtime import Executor
from aicf.tensor import Tensor

Key = tuple[str, str]


class _Freshness:
    """What the versions of parameters added up to when their copies were made last; None: nobody knows."""

    total: int | None = None


class Copies:
    """The copies in a program's memory. Programs that share states (``home`` is the other one's) share what is known of them.

    A run writes parameters and copies alike. Any other write counts in a tensor's version; where a tensor's memory was exported, others
    may write it unseen, and copies are made before every run.
    """

    def __init__(self, plan: Plan, executor: Executor, backend: Backend, tensors: Mapping[Key, Tensor], home: Copies | None) -> None:
        self._pairs = plan.copies
        self._executor, self._backend = executor, backend
        self._versions = [tensors[source.owner, source.role].version for source, _ in plan.copies]
        self._freshness: _Freshness = _Freshness() if home is None else home._freshness

    def _sum_versions(self) -> int | None:
        """Return a number that every write to a parameter with a copy changes; None where one may be written unseen."""
        total = 0
        for version in self._versions:
            if version.is_exported:
                return None
            total += version.count
        return total

    def follow(self) -> None:
        """Make the copies anew where a parameter was written since, on the device."""
        if not self._versions:
            return
        total = self._sum_versions()
        if total is not None and total == self._freshness.total:
            return
        for source, copy in self._pairs:
            (values,) = self._backend.op_call("Cast", (self._executor.view(source.slot),), {"dtype": copy.slot.type.dtype})
            self._executor.write(copy.slot, values)
        self._freshness.total = total

    def count_run(self) -> None:
        """Take it that a run has written all parameters once, and their copies."""
        if self._freshness.total is not None:
            self._freshness.total += len(self._versions)

    def forget(self) -> None:
        """Take it that parameters were written: the copies are made anew before the next run."""
        self._freshness.total = None

    def settle(self) -> None:
        """Take it that the copies are what the parameters are now."""
        self._freshness.total = self._sum_versions()

    def to_host(self, states: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.generic]]:
        """Return the copies of states by ``role:owner``, by their names in the same way."""
        with np.errstate(over="ignore"):  # what float16 cannot hold is infinite, as on the device
            return {
                f"{copy.role}:{copy.owner}": states[f"{source.role}:{source.owner}"].astype(find_dtype(copy.slot.type.dtype))
                for source, copy in self._pairs
            }
