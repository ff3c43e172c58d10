"""Elementwise calls as chains: what each computes as text of :mod:`contract.expressions`, which the frozen op ``elementwise`` runs.

A chain works on [rows, columns]. A value of the call has all elements, one per row, one per column, or one in all; which of these follows
from its shape and the result's. A counter (int64 or uint64) of n elements is n operands of type ``i64``, in a chain of one element.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.opset.definition import REQUIRED, Arrays, Builder, OpDef, Types, V
from aicf.opset.types import Attrs, Type
from contract.expressions.evaluate import Draws, evaluate
from contract.expressions.language import MAX_INPUTS, MAX_OUTPUTS, parse_chain
from contract.expressions.tree import Chain, Extent, Name

# How chains name dtypes.
NAMES = {"float32": "f32", "bfloat16": "bf16", "float16": "f16", "bool": "bool", "int64": "i64", "uint64": "i64"}
COUNTERS = ("int64", "uint64")
# What follows the name of each element of a counter: one, or two as a generator's seed and offset.
_COUNTED = ("", "b")
_EXTENTS = {Extent.FULL: "", Extent.ROWS: "[rows]", Extent.COLUMNS: "[columns]", Extent.ONE: "[]"}
_RESULT = re.compile(r"(\w+)\[([\d,]*)\]\Z")


@lru_cache(maxsize=4096)
def read_chain(text: str) -> Chain:
    """Return a chain that a node carries as text."""
    return parse_chain("chain", text)


@lru_cache(maxsize=4096)
def read_results(text: str) -> tuple[Type, ...]:
    """Return the types of a node's outputs: ``float32[3,4]; int64[]``."""
    found = []
    for part in text.split("; "):
        match = _RESULT.match(part)
        if match is None:
            raise ValueError(f"elementwise: results: {part!r} is not a type like float32[3,4]")
        found.append(Type(match[1], tuple(int(n) for n in match[2].split(",") if n)))
    return tuple(found)


def find_grid(shape: Sequence[int], operands: Sequence[Sequence[int]]) -> tuple[int, int, tuple[Extent, ...]] | None:
    """Return rows and columns of a result, and which elements of it each operand has; None where no division into two serves all."""
    rank = len(shape)
    for split in (0, *range(rank - 1, 0, -1)):
        rows, columns = math.prod(shape[:split]), math.prod(shape[split:])
        extents = [_find_extent((1,) * (rank - len(s)) + tuple(s), tuple(shape), split) for s in operands]
        if None not in extents:
            return rows, columns, tuple(e for e in extents if e is not None)
    return None


def _find_extent(own: tuple[int, ...], whole: tuple[int, ...], split: int) -> Extent | None:
    if own == whole:
        return Extent.FULL
    if math.prod(own) == 1:
        return Extent.ONE
    head, tail = own[:split], own[split:]
    if head == whole[:split] and math.prod(tail) == 1:
        return Extent.ROWS
    return Extent.COLUMNS if math.prod(head) == 1 and tail == whole[split:] else None


def call_chain(
    b: Builder, body: str, inputs: Sequence[tuple[V, Type]], results: Sequence[Type], counter: V | None = None
) -> tuple[V, ...] | None:
    """Append a chain that makes ``y0``, ``y1``, ... of ``x0``, ``x1``, ...; None for dtypes or shapes that no chain has.

    Operands of a counter of two elements are ``x0`` and ``x0b``. The dtype T is that of the first floating input.
    """
    shape = max((t.shape for t in results), key=len)
    grid = find_grid(shape if not _has_counters(results) else (), [() if t.dtype in COUNTERS else t.shape for _, t in inputs])
    if grid is None or any(t.dtype not in NAMES or t.num_elems == 0 for t in (*results, *(t for _, t in inputs))):
        return None
    rows, columns, extents = grid
    counters = [t for t in (*results, *(t for _, t in inputs)) if t.dtype in COUNTERS]
    if ((rows, columns) != (1, 1) and counters) or any(t.num_elems > len(_COUNTED) for t in counters):
        return None
    order = sorted(range(len(inputs)), key=lambda i: not inputs[i][1].is_float)
    generic = inputs[order[0]][1].dtype
    left = [operand for i in order for operand in _write_operands(f"x{i}", inputs[i][1], generic, extents[i])]
    right = [operand for i, t in enumerate(results) for operand in _write_operands(f"y{i}", t, generic, Extent.FULL)]
    attrs: Attrs = {"chain": f"{', '.join(left)} -> {', '.join(right)}; {body}", "rows": rows, "columns": columns}
    return b.call("elementwise", (counter, *(inputs[i][0] for i in order)), {**attrs, "results": "; ".join(map(str, results))})


def _has_counters(types: Sequence[Type]) -> bool:
    return any(t.dtype in COUNTERS for t in types)


def _write_operands(name: str, t: Type, generic: str, extent: Extent) -> list[str]:
    if t.dtype in COUNTERS:
        return [f"{name}{suffix}: i64" for suffix in _COUNTED[: t.num_elems]]
    return [f"{name}: {'T' if t.dtype == generic and t.is_float else NAMES[t.dtype]}{_EXTENTS[extent]}"]


def find_generic(types: Types, chain: Chain) -> str:
    """Return the dtype that T is in a call: that of its first input."""
    return types[1].dtype if chain.inputs[0].type == "T" and types[1] is not None else "float32"


def is_copy(op: str, inputs: Sequence[Any], attrs: Attrs) -> bool:
    """Whether a call is a chain that returns its only operand as it is, in whatever dtype: a copy, or a cast."""
    if op != "elementwise" or len(inputs) != 2 or inputs[0] is not None:
        return False
    chain = read_chain(str(attrs["chain"]))
    known = dict(chain.assignments)
    tree = known[chain.outputs[0].name]
    while isinstance(tree, Name) and tree.name in known:
        tree = known[tree.name]
    return len(chain.outputs) == 1 and len(chain.inputs) == 1 and tree == Name(chain.inputs[0].name)


def count_operands(t: Type) -> int:
    """Return how many operands of a chain a value is: one, or one per element of a counter."""
    return t.num_elems if t.dtype in COUNTERS else 1


# ---- the frozen op


def _infer(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    return _find_results(tuple(types), str(attrs["chain"]), str(attrs["results"]), *_read_sizes(attrs))


@lru_cache(maxsize=4096)
def _find_results(types: tuple[Type | None, ...], text: str, made: str, rows: int, columns: int) -> tuple[Type, ...]:
    chain, results = read_chain(text), read_results(made)
    counter, *inputs = types
    if (chain.num_draws > 0) != (counter is not None):
        raise TypeError(f"elementwise: counter: expected {'one' if chain.num_draws else 'none'}, got {counter}")
    if counter is not None and counter != Type("uint64", (2,)):
        raise TypeError(f"elementwise: counter: expected uint64[2], got {counter}")
    given = [(t, NAMES.get(t.dtype, "")) for t in inputs if t is not None for _ in range(count_operands(t))]
    generic = find_generic(types, chain)
    if len(given) != len(chain.inputs):
        raise TypeError(f"elementwise: {text}: takes {len(chain.inputs)} operands, got {len(given)}")
    for operand, (t, name) in zip(chain.inputs, given, strict=True):
        wanted = NAMES[generic] if operand.type == "T" else operand.type
        count = {"rows": rows, "columns": columns}
        elems = math.prod(n if isinstance(n, int) else count[n] for n in operand.shape)
        if name != wanted or (operand.type != "i64" and t.num_elems != elems):
            raise TypeError(f"elementwise: {text}: {operand.name}: expected {elems} elements of {wanted}, got {t}")
    words = [t for t in results for _ in range(count_operands(t))]
    if len(words) != len(chain.outputs) or any(t.dtype not in COUNTERS and t.num_elems != rows * columns for t in results):
        raise TypeError(f"elementwise: {text}: results {made} do not fit {rows} x {columns}")
    return results


def _read_sizes(attrs: Attrs) -> tuple[int, int]:
    rows, columns = attrs["rows"], attrs["columns"]
    assert isinstance(rows, int) and isinstance(columns, int)
    return rows, columns


def _compute(arrays: Arrays, attrs: Attrs) -> list[NDArray[Any]]:
    """Return the chain's values in float64."""
    chain, results = read_chain(str(attrs["chain"])), read_results(str(attrs["results"]))
    counter, *inputs = arrays
    rows, columns = _read_sizes(attrs)
    sizes = {"rows": rows, "columns": columns}
    operands = [part for a in inputs for part in (a.reshape(-1) if a.dtype.name in COUNTERS else (a,))]
    named = {
        o.name: np.asarray(a).reshape([n if isinstance(n, int) else sizes[n] for n in o.shape])
        for o, a in zip(chain.inputs, operands, strict=True)
    }
    draws = None
    if counter is not None:
        draws = Draws(int(counter[0]), int(counter[1]), np.arange(rows * columns).reshape(rows, columns))
    values = evaluate(chain, named, draws)
    made = iter([np.broadcast_to(values[o.name], (rows, columns)) for o in chain.outputs])
    return [np.concatenate([next(made).reshape(-1) for _ in range(count_operands(t))]).reshape(t.shape) for t in results]


OPS = (
    OpDef(
        "elementwise",
        ("counter?", "x*"),
        tuple(f"y{i}" for i in range(MAX_OUTPUTS)),
        _infer,
        _compute,
        {"chain": REQUIRED, "rows": REQUIRED, "columns": REQUIRED, "results": REQUIRED},
        is_frozen=True,
    ),
)

__all__ = [
    "COUNTERS",
    "MAX_INPUTS",
    "MAX_OUTPUTS",
    "NAMES",
    "call_chain",
    "count_operands",
    "find_generic",
    "find_grid",
    "is_copy",
    "read_chain",
    "read_results",
]
