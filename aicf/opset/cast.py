"""Casts: the same values in another dtype."""

from __future__ import annotations

from collections.abc import Sequence

from aicf.opset.chains import COUNTERS, call_chain
from aicf.opset.definition import REQUIRED, Backward, Builder, OpDef, Types, V
from aicf.opset.types import Attrs, Type


def _infer_cast(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    (x,) = types
    assert x is not None
    return (x.cast(str(attrs["dtype"])),)


def _cast_back(g: Backward, dy: V) -> tuple[V | None]:
    return (g.cast(dy, g.of("x").dtype) if g.of("x").is_float and g.of("y").is_float else None,)


def _lower_cast(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> Sequence[V] | None:
    x, result = b.type_of(inputs[0]), _infer_cast([b.type_of(inputs[0])], attrs)
    if result[0].dtype == "bool" and x.is_float:
        return call_chain(b, "y0 = x0 != 0.0", [(inputs[0], x)], result)
    if not result[0].is_float:
        return None
    text = "float(x0)" if x.dtype in COUNTERS else "where(x0, 1.0, 0.0)" if x.dtype == "bool" else "x0"
    return call_chain(b, f"y0 = {text}", [(inputs[0], x)], result)


OPS = (
    OpDef(
        "Cast",
        ("x",),
        ("y",),
        _infer_cast,
        lambda arrays, attrs: (arrays[0],),
        {"dtype": REQUIRED},
        _cast_back,
        amp="follow",
        lower=_lower_cast,
    ),
)
