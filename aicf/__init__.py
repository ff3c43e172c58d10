"""The framework on the frozen kernel set. Importing this package reads nothing, builds nothing and opens no device."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aicf import frontends, functional, nn, optim, rewrite, workbench
    from aicf.autograd import grad, no_grad
    from aicf.backends import set_backend, use_backend
    from aicf.gradient_check import gradcheck
    from aicf.random import Generator, manual_seed
    from aicf.state import load_state, save_state
    from aicf.tensor import Tensor
    from aicf.train import compile, compile_step, load  # noqa: A004

# Public names and where they live; each is imported when it is first used.
_PLACES = {
    "Generator": "aicf.random",
    "Tensor": "aicf.tensor",
    "compile": "aicf.train",
    "compile_step": "aicf.train",
    "load": "aicf.train",
    "load_state": "aicf.state",
    "grad": "aicf.autograd",
    "gradcheck": "aicf.gradient_check",
    "manual_seed": "aicf.random",
    "no_grad": "aicf.autograd",
    "save_state": "aicf.state",
    "set_backend": "aicf.backends",
    "use_backend": "aicf.backends",
}
_MODULES = ("frontends", "functional", "nn", "optim", "rewrite", "workbench")

__all__ = [
    "Generator",
    "Tensor",
    "compile",
    "compile_step",
    "frontends",
    "functional",
    "grad",
    "gradcheck",
    "load",
    "load_state",
    "manual_seed",
    "nn",
    "no_grad",
    "optim",
    "rewrite",
    "save_state",
    "set_backend",
    "use_backend",
    "workbench",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"aicf.{name}")
    if name in _PLACES:
        found = globals()[name] = getattr(importlib.import_module(_PLACES[name]), name)
        return found
    raise AttributeError(f"module 'aicf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
