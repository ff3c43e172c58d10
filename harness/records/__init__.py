"""Measurements, never overwritten: the database of runs, its files, and its tables in pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandas import DataFrame


def load(op: str, source: str = "auto", *, url: str | None = None) -> DataFrame:
    """Return an op's results as a table, a row a result; :func:`harness.records.frames.load_frame` documents the columns."""
    from harness.records.frames import load_frame  # pandas takes a second to import

    return load_frame(op, source, url=url)
