"""Figures as text: microseconds, counts and ratios for tables, colours of a status, and values that JSON lacks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

# How a status is coloured in a table.
STATUS_STYLE = {"passed": "green", "failed": "bold red", "unsupported": "yellow", "not_run": "yellow"}


def format_us(value: float | None) -> str:
    """Format microseconds with four significant digits, or two decimals from 100 up."""
    if value is None:
        return ""
    return f"{value:.4g}" if value < 100 else f"{value:.2f}"


def format_count(value: int) -> str:
    """Format a count: whole below ten thousand, then with k, M or G."""
    if value < 10_000:
        return str(value)
    for unit, scale in (("k", 1e3), ("M", 1e6), ("G", 1e9)):
        if value < 1000 * scale or unit == "G":
            return f"{value / scale:.4g} {unit}"
    raise AssertionError("unreachable")


def count_things(count: int, noun: str) -> str:
    """Return a count with its noun, whose plural ends in s: ``1 finding``, ``2 findings``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def format_figure(value: float) -> str:
    """Format a ratio with three significant digits."""
    return f"{value:.3g}"


def clean_json(value: Any) -> Any:
    """Replace what JSON cannot say (NaN and the infinities) by its name, in nested plain values."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(k): clean_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [clean_json(v) for v in value]
    return value
