"""Moments of a run to which it can go back, in memory or in a safetensors file."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.errors import StateError
from aicf.ir.graph import OBSERVATION
from aicf.opset import find_dtype
from aicf.plan.data import STATE
from aicf.rewrite.log import Log, read_entry
from aicf.rewrite.records import RewriteRecord
from aicf.rewrite.structure import Frame
from aicf.state import read_arrays, write_arrays
from contract.documents import parse_json

_KIND = "run"


class Moment(ABC):
    """A run at a moment, in memory or in a file, which can be compared with another."""

    name: str
    steps_done: int
    records: tuple[RewriteRecord, ...]

    @abstractmethod
    def read_states(self) -> dict[str, NDArray[Any]]:
        """Return all state but the observers' in host memory by ``role:owner``; of frozen parameters by ``resting role:owner``."""

    def diff(self, later: Moment) -> Difference:
        """Return what is different at another moment of the same run or of a fork: structure, and state by role and owner."""
        before, after = self.read_states(), later.read_states()
        types = [{name: (a.dtype.name, *a.shape) for name, a in states.items()} for states in (before, after)]
        both = [name for name in before if name in after]
        shared = 0
        for mine, theirs in zip(self.records, later.records, strict=False):
            if (mine.step, mine.rule) != (theirs.step, theirs.rule):
                break
            shared += 1
        return Difference(
            later.steps_done - self.steps_done,
            self.records[shared:],
            later.records[shared:],
            tuple(name for name in before if name not in after),
            tuple(name for name in after if name not in before),
            {name: (before[name].shape, after[name].shape) for name in both if types[0][name] != types[1][name]},
            {
                name: _measure_change(before[name], after[name])
                for name in both
                if types[0][name] == types[1][name] and before[name].tobytes() != after[name].tobytes()
            },
        )


@dataclass(frozen=True)
class Snapshot(Moment):
    """A run at a moment: its structure with all state, the loader's place where it has one, and rewrites and log until then."""

    name: str
    steps_done: int
    frame: Frame
    loader: Mapping[str, Any] | None
    records: tuple[RewriteRecord, ...]
    log: Log
    batch: int | None = None  # the loader's
    in_window: int = 0  # steps of the observers' window that are done

    @property
    def size_bytes(self) -> int:
        """The bytes of its state."""
        return int(self.frame.made.plan.sizes[STATE])

    def __str__(self) -> str:
        if self.frame.state is None:
            return f"{self.name}: step {self.steps_done}, replaced by a later one"
        where = "on the host" if isinstance(self.frame.state, np.ndarray) else "on the device"
        return f"{self.name}: step {self.steps_done}, {len(self.records)} rewrites, {self.size_bytes} bytes {where}"

    def save(self, path: Path | str) -> None:
        """Write a safetensors file, as a whole or not at all: states by ``role:owner``, and in its metadata what else a run needs.

        The model itself is not in it: :meth:`Run.resume` makes the rewrites again. Raises :class:`~aicf.errors.StateError`.
        """
        facts = {
            "kind": _KIND,
            "name": self.name,
            "steps_done": str(self.steps_done),
            "loader": json.dumps(self.loader),
            "batch": json.dumps(self.batch),
            "in_window": str(self.in_window),
            "records": "\n".join(record.to_json() for record in self.records),
            "log": "\n".join(self.log.to_lines()),
        }
        write_arrays(Path(path), self.read_states(), facts)

    def read_states(self) -> dict[str, NDArray[Any]]:
        """Return all state, see :meth:`Moment.read_states`."""
        arrays: dict[str, NDArray[Any]] = {}
        data = self.frame.read_state().data
        for state in self.frame.made.plan.own_states:
            if state.role != OBSERVATION:
                slot = state.slot
                values: NDArray[Any] = np.ndarray(slot.type.shape, find_dtype(slot.type.dtype), data, slot.offset)
                arrays[f"{state.role}:{state.owner}"] = values
        for owner, rest in self.frame.resting.items():
            arrays |= {f"resting {role}:{owner}": values for role, values in rest.state.items()}
        return arrays


@dataclass(frozen=True)
class Difference:
    """What a snapshot has that one before had not. States are named by ``role:owner``.

    ``undone`` and ``done`` are the rewrites behind the last one that both share; ``reshaped`` are shapes before and after; ``changed`` are
    the largest magnitudes by which values differ, where shapes are the same and bits are not.
    """

    steps: int
    undone: tuple[RewriteRecord, ...]
    done: tuple[RewriteRecord, ...]
    gone: tuple[str, ...]
    new: tuple[str, ...]
    reshaped: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]
    changed: Mapping[str, float]

    def __str__(self) -> str:
        lines = [f"{self.steps:+d} steps"]
        lines += [f"without {json.dumps(r.rule, sort_keys=True)} at step {r.step}" for r in self.undone]
        lines += [f"with {json.dumps(r.rule, sort_keys=True)} at step {r.step}" for r in self.done]
        lines += [f"gone {name}" for name in self.gone] + [f"new {name}" for name in self.new]
        lines += [f"{name} {list(a)} -> {list(b)}" for name, (a, b) in self.reshaped.items()]
        lines += [f"{name} changed by at most {value:.3g}" for name, value in self.changed.items()]
        return "\n".join(lines)


def _measure_change(before: NDArray[Any], after: NDArray[Any]) -> float:
    return float(np.max(np.abs(after.astype(np.float64) - before.astype(np.float64))))


@dataclass(frozen=True)
class Saved(Moment):
    """What a snapshot's file holds."""

    name: str
    steps_done: int
    loader: Mapping[str, Any] | None
    batch: int | None
    in_window: int
    records: tuple[RewriteRecord, ...]
    log: Log
    states: Mapping[str, NDArray[Any]]
    resting: Mapping[str, Mapping[str, NDArray[Any]]]

    @classmethod
    def read(cls, path: Path | str) -> Saved:
        """Return what a file holds; raises :class:`~aicf.errors.StateError` naming one that is missing, cut short, or something else."""
        arrays, facts = read_arrays(Path(path))
        if facts.get("kind") != _KIND:
            raise StateError(f"{path}: is not a snapshot of a run; Snapshot.save writes one")
        resting: dict[str, dict[str, NDArray[Any]]] = {}
        for name in [name for name in arrays if name.startswith("resting ")]:
            role, _, owner = name.removeprefix("resting ").partition(":")
            resting.setdefault(owner, {})[role] = arrays.pop(name)
        try:
            return cls(
                facts["name"],
                int(facts["steps_done"]),
                _read_fact(facts["loader"], Mapping),
                _read_fact(facts["batch"], int),
                int(facts["in_window"]),
                tuple(RewriteRecord.from_json(line) for line in facts["records"].splitlines()),
                Log(read_entry(line) for line in facts["log"].splitlines()),
                arrays,
                resting,
            )
        except (KeyError, ValueError) as error:
            raise StateError(f"{path}: is not a snapshot that this version can read: {error}") from error

    def read_states(self) -> dict[str, NDArray[Any]]:
        """Return all state, see :meth:`Moment.read_states`."""
        rest = {f"resting {role}:{owner}": values for owner, roles in self.resting.items() for role, values in roles.items()}
        return {**self.states, **rest}

    def __str__(self) -> str:
        size_bytes = sum(values.nbytes for values in self.read_states().values())
        return f"{self.name}: step {self.steps_done}, {len(self.records)} rewrites, {size_bytes} bytes in a file"


def _read_fact(text: str, kind: type[Any]) -> Any:
    """Return the value of a kind, or None, that a text of JSON holds; raises ValueError for another."""
    value = parse_json(text)
    if value is not None and not isinstance(value, kind):
        raise ValueError(f"{text[:40]!r} instead of {kind.__name__} or null")
    return value
