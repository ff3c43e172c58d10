"""Rows of a table by index, and its gradient: rows added into a table."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicf.opset.definition import REQUIRED, Arrays, Backward, OpDef, Types, V
from aicf.opset.types import Attrs, Type


def _infer_embedding(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    table, indices = types
    assert table is not None and indices is not None
    _check_indices("Embedding", indices)
    if len(table.shape) != 2:
        raise ValueError(f"Embedding: expected a table [rows, columns], got shape {table.shape}")
    return (table.reshape((*indices.shape, table.shape[1])),)


def _check_indices(op: str, indices: Type) -> None:
    if indices.dtype not in ("int64", "int32"):
        raise TypeError(f"{op}: indices: expected int64 or int32, got {indices.dtype}")


def check_range(op: str, indices: Any, count: int) -> None:
    """Raise IndexError, naming the first index that is not in 0..count-1."""
    wrong = (indices < 0) | (indices >= count)
    if wrong.any():
        raise IndexError(f"{op}: index {indices[wrong][0]} is not in 0..{count - 1}")


def _gather(arrays: Arrays, attrs: Attrs) -> tuple[Any]:
    table, indices = arrays
    check_range("Embedding", indices, table.shape[0])
    return (table[indices],)


def _differentiate_embedding(g: Backward, dy: V) -> tuple[V | None, None]:
    rows = g.of("table").shape[0]
    return (g.one("ScatterAdd", dy, g["indices"], rows=rows) if "table" in g.needed else None, None)


def _infer_scatter(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    rows, indices = types
    assert rows is not None and indices is not None
    _check_indices("ScatterAdd", indices)
    if rows.shape[:-1] != indices.shape:
        raise ValueError(f"ScatterAdd: expected a row per index, got rows {rows.shape} and indices {indices.shape}")
    count = attrs["rows"]
    assert isinstance(count, int)
    return (rows.reshape((count, rows.shape[-1])),)


def _scatter(arrays: Arrays, attrs: Attrs) -> tuple[Any]:
    rows, indices = arrays
    count = attrs["rows"]
    assert isinstance(count, int)
    check_range("ScatterAdd", indices, count)
    made = np.zeros((count, rows.shape[-1]), rows.dtype)
    np.add.at(made, indices.reshape(-1), rows.reshape(-1, rows.shape[-1]))
    return (made,)


def _save_indices(attrs: Attrs, needed: set[str]) -> set[str]:
    return {"indices"}


OPS = (
    OpDef("Embedding", ("table", "indices"), ("y",), _infer_embedding, _gather, {}, _differentiate_embedding, _save_indices, moves=True),
    OpDef(
        "ScatterAdd",
        ("rows", "indices"),
        ("table",),
        _infer_scatter,
        _scatter,
        {"rows": REQUIRED},
        lambda g, dy: (g.one("Embedding", dy, g["indices"]), None),
        _save_indices,
        amp="never",
    ),
)
