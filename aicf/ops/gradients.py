"""Rules for backward passes: by op, what its gradients are, made with other frozen ops. An op without a rule has no backward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Rule = Callable[[Mapping[str, Any], Mapping[str, Any], Sequence[Any], Sequence[Any], Sequence[bool]], dict[str, Any]]
RULES: dict[str, Rule] = {}
