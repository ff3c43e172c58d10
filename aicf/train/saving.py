"""A compiled program as files: its plan, its states, and the launches that ``deploy`` makes C of."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from numpy.typing import NDArray

from aicf.errors import PlanError
from aicf.plan import Plan, load_plan, save_plan, verify
from aicf.state import read_arrays, write_arrays
from contract.files import write_atomically

PLAN, STATES, LAUNCHES = "plan.json", "states.safetensors", "launches.json"


@dataclass(frozen=True)
class Saved:
    """What a folder holds: the kind of program, its plan, its states by ``role:owner``, and its launches where its backend has them."""

    kind: str
    plan: Plan
    states: Mapping[str, NDArray[Any]]
    launches: dict[str, Any] | None

    def write(self, folder: Path) -> None:
        """Write all into a folder, which is made; each file is replaced as a whole."""
        folder.mkdir(parents=True, exist_ok=True)
        write_arrays(folder / STATES, self.states, {"kind": self.kind})
        save_plan(self.plan, folder / PLAN)
        if self.launches is not None:
            launches = {**self.launches, "plan": _hash(folder / PLAN)}
            write_atomically(folder / LAUNCHES, json.dumps(launches, indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path, kinds: Collection[str]) -> Self:
        """Return what a folder holds, a program of one of these kinds, its plan verified.

        Raises :class:`~aicf.errors.PlanError` or :class:`~aicf.errors.StateError` naming the file that cannot be read.
        """
        states, facts = read_arrays(folder / STATES)
        if (kind := facts.get("kind", "")) not in kinds:
            raise PlanError(f"{folder}: holds a program of kind {kind!r}; there are: {', '.join(kinds)}")
        plan = load_plan(folder / PLAN)
        verify(plan)
        for name in (f"{s.role}:{s.owner}" for s in plan.own_states):
            if name not in states:
                raise PlanError(f"{folder / STATES}: has no state {name!r}; save the program again")
        return cls(kind, plan, states, _read_launches(folder))


def _hash(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def _read_launches(folder: Path) -> dict[str, Any] | None:
    """Return the launches that were saved with a plan; None where there are none of this very plan."""
    try:
        value = json.loads((folder / LAUNCHES).read_text())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) and value.get("plan") == _hash(folder / PLAN) else None
