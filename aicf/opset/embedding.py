"""Rows of a table by index, and its gradient: rows added into a table; and both as frozen ops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aicf.opset.definition import REQUIRED, Arrays, Backward, Builder, OpDef, Types, V
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


def _lower_embedding(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> list[V] | None:
    table, indices = inputs
    if b.type_of(table).dtype == "float64":
        return None
    shape = b.type_of(indices).shape
    made = b.one("embedding", table, b.reshape(indices, (math.prod(shape),)))
    return [b.reshape(made, (*shape, b.type_of(table).shape[1]))]


def _lower_scatter(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> list[V] | None:
    rows, indices = inputs
    t = b.type_of(rows)
    if t.dtype == "float64":
        return None
    count = math.prod(t.shape[:-1])
    flat = b.reshape(rows, (count, t.shape[-1])), b.reshape(indices, (count,))
    return [b.one("embedding_backward", *flat, vocabulary=attrs["rows"])]


# ---- as frozen ops, which take a matrix and a vector. Without their status word a wrong index ends the launch.


def _infer_frozen_embedding(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    _require_vector("embedding", types[1])
    return _infer_embedding(types, attrs)


def _infer_frozen_backward(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    _require_vector("embedding_backward", types[1])
    return _infer_scatter(types, {"rows": attrs["vocabulary"]})


def _require_vector(op: str, indices: Type | None) -> None:
    if indices is None or len(indices.shape) != 1:
        raise ValueError(f"{op}: indices: expected one dimension, got {indices}")


OPS = (
    OpDef(
        "Embedding",
        ("table", "indices"),
        ("y",),
        _infer_embedding,
        _gather,
        {},
        _differentiate_embedding,
        _save_indices,
        moves=True,
        lower=_lower_embedding,
    ),
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
        lower=_lower_scatter,
    ),
    OpDef("embedding", ("table", "indices"), ("y",), _infer_frozen_embedding, _gather, moves=True, is_frozen=True),
    OpDef(
        "embedding_backward",
        ("dy", "indices"),
        ("dtable",),
        _infer_frozen_backward,
        lambda arrays, attrs: _scatter(arrays, {"rows": attrs["vocabulary"]}),
        {"vocabulary": REQUIRED},
        is_frozen=True,
    ),
)
