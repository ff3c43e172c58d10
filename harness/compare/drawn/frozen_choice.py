"""What users get: the kernel of the frozen set that the framework chooses for a problem, built from its sealed sources.

The decision is asked of the framework itself, in a process of its own (``python -m aicf choose``): the workbench imports nothing of the
framework, and a second writing of the decision would judge something else than what users get.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.frozen_set import read_op
from contract.layout import INDEX, find_frozen_dir, hash_bytes
from device.settings import find_project_root
from harness.errors import FrozenError
from harness.spec import Op, Problem, SpecError


@dataclass(frozen=True)
class FrozenChoice:
    """The framework's decision for one problem: ``error`` says why there is none, and then the rest is empty.

    ``legal`` are the names of all frozen kernels that serve the problem; ``how`` is the step of the decision that found ``kernel``.
    """

    kernel: str = ""
    variant: str = ""
    how: str = ""
    reason: str = ""
    predicted_us: float | None = None
    legal: tuple[str, ...] = ()
    error: str = ""


def choose_frozen(op: Op, problems: Sequence[Problem], arch: str, frozen_dir: Path | None = None) -> list[FrozenChoice]:
    """Return the decision for each problem; an op that is not frozen has an error in each. Raises :class:`FrozenError`.

    An op may have grown since it was frozen: there is no decision for what its index does not know.
    """
    if not (frozen_dir or find_frozen_dir()).joinpath(op.name, INDEX).is_file():
        return [FrozenChoice(error=f"{op.name} is not frozen")] * len(problems)
    interface = read_op(op.name, frozen_dir or find_frozen_dir()).description["interface"]
    calls = [_describe_call(op, p, interface) for p in problems]
    asked = iter(_ask(op.name, [c for c in calls if not isinstance(c, FrozenChoice)], arch))
    return [c if isinstance(c, FrozenChoice) else next(asked) for c in calls]


def _ask(op: str, calls: Sequence[Mapping[str, Any]], arch: str) -> list[FrozenChoice]:
    lines = "".join(json.dumps(call) + "\n" for call in calls)
    command = [sys.executable, "-m", "aicf", "choose", op, "--arch", arch]
    done = subprocess.run(command, input=lines, cwd=find_project_root(), capture_output=True, encoding="utf-8", check=False)
    rows = done.stdout.splitlines()
    if done.returncode != 0 or len(rows) != len(calls):
        said = done.stderr.strip() or f"{len(rows)} answers to {len(calls)} calls"
        raise FrozenError(f"`{' '.join(command[1:])}` did not decide: {said}")
    return [_read_choice(json.loads(row)) for row in rows]


def _describe_call(op: Op, problem: Problem, interface: Mapping[str, Any]) -> dict[str, Any] | FrozenChoice:
    facts = op.find_facts(problem)
    try:
        attributes = op.cut_attributes(problem, interface)
    except SpecError as error:
        return FrozenChoice(error=str(error))
    return {"sizes": dict(facts.sizes), "attributes": attributes, "strides": dict(facts.strides)}


def _read_choice(row: Mapping[str, Any]) -> FrozenChoice:
    given = dict(row)
    return FrozenChoice(legal=tuple(given.pop("legal", ())), **given)


def hash_index(op: str, frozen_dir: Path | None = None) -> str:
    """Return the SHA-256 of an op's index, by which records know what set they judged; "" where it is not frozen."""
    path = (frozen_dir or find_frozen_dir()) / op / INDEX
    return hash_bytes(path.read_bytes()) if path.is_file() else ""
