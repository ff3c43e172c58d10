"""State in safetensors files: arrays, and whatever else a run needs to continue with the same bits.

A file is written beside its place and renamed: one that is there is whole, and stays where a write fails.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.data import DataLoader
from aicf.errors import StateError
from aicf.nn import Module
from aicf.optim import Optimizer
from aicf.random import Generator
from contract.files import write_atomically


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, str]) -> None:
    """Write arrays and texts as one file; raises :class:`StateError` where that fails, and the older file stays."""
    from safetensors.numpy import save

    content = save({name: np.ascontiguousarray(a).reshape(a.shape) for name, a in arrays.items()}, dict(facts))
    try:
        write_atomically(path, content, durable=True)
    except OSError as error:
        raise StateError(f"{path}: cannot be written: {error.strerror or error}; what was there before is untouched") from error


def read_arrays(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Return the arrays and texts of a file; raises :class:`StateError` naming one that is missing or was cut short."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118  # it is no mapping
    except (OSError, SafetensorError) as error:
        raise StateError(f"{path}: cannot be read: {error}; use an older checkpoint") from error


def save_state(
    path: Path | str,
    *,
    model: Module | None = None,
    optimizer: Optimizer | None = None,
    generator: Generator | None = None,
    loader: DataLoader | None = None,
) -> None:
    """Write what a run needs to go on: weights, moments and step, the generator's counter, the loader's place."""
    arrays: dict[str, NDArray[Any]] = {}
    if model is not None:
        arrays |= {f"model.{name}": value for name, value in model.state_dict().items()}
    if optimizer is not None:
        arrays |= {f"optimizer.{name}": value for name, value in optimizer.state_dict().items()}
    facts = {name: json.dumps(held.state_dict()) for name, held in (("generator", generator), ("loader", loader)) if held is not None}
    write_arrays(Path(path), arrays, facts)


def load_state(
    path: Path | str,
    *,
    model: Module | None = None,
    optimizer: Optimizer | None = None,
    generator: Generator | None = None,
    loader: DataLoader | None = None,
) -> None:
    """Take up what :func:`save_state` wrote; raises :class:`StateError` for a file that lacks what is asked for."""
    arrays, facts = read_arrays(Path(path))
    for name, held in (("model", model), ("optimizer", optimizer)):
        if held is not None:
            own = {key.removeprefix(f"{name}."): value for key, value in arrays.items() if key.startswith(f"{name}.")}
            if not own:
                raise StateError(f"{path}: holds no {name} state")
            held.load_state_dict(own)
    for name, counted in (("generator", generator), ("loader", loader)):
        if counted is not None:
            if name not in facts:
                raise StateError(f"{path}: holds no {name} state")
            counted.load_state_dict(json.loads(facts[name]))
