"""What matrix products share: activations as epilogues, by name."""

from __future__ import annotations

from typing import Any

from aicf.opset.elementwise import ACTIVATIONS, FUNCTIONS
from aicf.opset.types import Attrs


def check_act(op: str, attrs: Attrs) -> None:
    """Raise ValueError for an activation that is not an epilogue."""
    if attrs["act"] not in ACTIVATIONS:
        raise ValueError(f"{op}: act: expected one of {', '.join(ACTIVATIONS)}, got {attrs['act']!r}")


def activate(z: Any, act: Any) -> Any:
    """Return an activation of z."""
    return z if act == "none" else FUNCTIONS[str(act)].meaning(z)


def apply_slope(z: Any, act: Any) -> Any:
    """Return an activation's slope at z."""
    return FUNCTIONS[f"{act}_slope"].meaning(z)
