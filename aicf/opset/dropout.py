"""Dropout by counter: which elements are kept depends only on a seed, an offset and the element's index (Philox 4x32-10).

The mask is never stored: the backward pass makes it again from the same counter. The random words are those of chains
(:mod:`contract.expressions.philox`), so that the frozen op ``elementwise`` drops the same elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.opset.chains import call_chain
from aicf.opset.definition import REQUIRED, Arrays, Backward, Builder, OpDef, Types, V, same_floats
from aicf.opset.types import Attrs, Type
from contract.expressions.philox import draw_sequence, find_kept

# Seed and offset.
COUNTER = Type("uint64", (2,))


def draw_uniform(num_elems: int, seed: int, offset: int) -> NDArray[np.float64]:
    """Return numbers in [0, 1) with 24 bits, one per element: word i % 4 of the counter (i // 4, offset)."""
    made: NDArray[np.float64] = (draw_sequence(num_elems, seed, offset) >> np.uint32(8)).astype(np.float64) * 2.0**-24
    return made


def _infer(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    x, counter = types
    assert x is not None
    same_floats("Dropout", ("x",), (x,))
    p = attrs["p"]
    if not isinstance(p, (int, float)) or not 0.0 <= p < 1.0:
        raise ValueError(f"Dropout: p: expected a number in [0, 1), got {p!r}")
    _check_counter("Dropout", counter)
    return (x,)


def _check_counter(op: str, counter: Type | None) -> None:
    if counter != COUNTER:
        raise TypeError(f"{op}: counter: expected {COUNTER} (seed and offset), got {counter}")


def _find_skip(attrs: Attrs, name: str = "skip") -> int:
    skip = attrs[name]
    assert isinstance(skip, int)
    return skip


def _drop(arrays: Arrays, attrs: Attrs) -> tuple[Any]:
    x, counter = arrays
    p = attrs["p"]
    assert isinstance(p, (int, float))
    words = draw_sequence(x.size, int(counter[0]), int(counter[1]) + _find_skip(attrs)).reshape(x.shape)
    return (np.where(find_kept(words, p), x / (1.0 - p), 0.0),)


def _differentiate(g: Backward, dy: V) -> tuple[V, None]:
    return g.one("Dropout", dy, g["counter"], p=g.attrs["p"], skip=g.attrs["skip"]), None


def _lower(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> Sequence[V] | None:
    x, counter = inputs
    if skip := _find_skip(attrs):
        counter = b.one("Advance", counter, by=skip)
    t = b.type_of(x)
    return call_chain(b, f"y0 = dropout(x0, {attrs['p']!r})", [(x, t)], [t], counter)


def _infer_advance(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    _check_counter("Advance", types[0])
    return (COUNTER,)


def _advance(arrays: Arrays, attrs: Attrs) -> tuple[Any]:
    return (arrays[0] + np.array([0, _find_skip(attrs, "by")], np.uint64),)


def _lower_advance(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> Sequence[V] | None:
    return call_chain(b, f"y0 = x0 + 0; y0b = x0b + {attrs['by']}", [(inputs[0], COUNTER)], [COUNTER])


OPS = (
    OpDef(
        "Dropout",
        ("x", "counter"),
        ("y",),
        _infer,
        _drop,
        {"p": REQUIRED, "skip": 0},
        _differentiate,
        lambda attrs, needed: {"counter"},
        lower=_lower,
    ),
    OpDef("Advance", ("counter",), ("y",), _infer_advance, _advance, {"by": REQUIRED}, lower=_lower_advance),
)
