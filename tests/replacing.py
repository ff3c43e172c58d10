"""Replacing a function of the harness for a test, in every module that uses it."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable
from typing import Any

import pytest

from harness import commands


def replace_function(monkeypatch: pytest.MonkeyPatch, target: str, function: Callable[..., Any]) -> None:
    """Replace the function ``target`` (``package.module.name``) where it is defined and wherever the harness has imported it by name."""
    for verb in pkgutil.iter_modules(commands.__path__):
        importlib.import_module(f"harness.commands.{verb.name}")
    home, _, name = target.rpartition(".")
    replaced = getattr(importlib.import_module(home), name)
    for module in [m for n, m in sys.modules.items() if n.partition(".")[0] == "harness"]:
        if getattr(module, name, None) is replaced:
            monkeypatch.setattr(module, name, function)
