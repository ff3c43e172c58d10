"""What is recorded, before it becomes a row: the environment of a run, and one result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class EnvironmentFacts:
    """The columns of :class:`harness.records.tables.Environment` but its keys.

    ``device_kind`` is ``cuda`` or ``emulated``; ``runtime_hash`` the SHA-256 of the CUDA runtime library in use, thus of the emulator.
    """

    device_kind: str
    device_name: str
    device_uuid: str
    driver_version: int
    runtime_version: int
    runtime_hash: str
    toolchain: str
    target: str
    host: str

    @property
    def digest(self) -> str:
        """SHA-256 over all fields."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class ResultFacts:
    """One result to be recorded; fields as in :class:`harness.records.tables.Result`."""

    kind: str
    op: str
    variant: str
    problem: str
    status: str
    reason: str = ""
    code_hash: str = ""
    key: str = ""
    spec_hash: str = ""
    verify_version: int = 0
    figures: Mapping[str, Any] | None = None
    samples: NDArray[np.float32] | None = None
    source_hash: str = ""
    flags: str = ""
    clock_label: str = ""
    inputs: str = ""
    clocks: NDArray[np.float32] | None = None
