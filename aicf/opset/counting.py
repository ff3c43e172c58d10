"""A step counter that counts only the steps that were taken."""

from __future__ import annotations

from collections.abc import Sequence

from aicf.opset.chains import call_chain, read_chain
from aicf.opset.definition import Builder, OpDef, Types, V
from aicf.opset.types import Attrs, Type
from aicf.opset.updates import RATE, STEP

COUNT_STEP = "CountStep"
# ``x0`` are the steps done, ``x1`` is the factor of the update.
_BODY = "y0 = where(x1 > 0.0, x0 + 1, x0)"
_MEANING = read_chain(f"x1: T, x0: i64 -> y0: i64; {_BODY}").find_meaning("float32")


def counts_steps(op: str, attrs: Attrs) -> bool:
    """Whether a call is the chain that :data:`COUNT_STEP` is lowered to, of the factor and the steps done."""
    return op == "elementwise" and read_chain(str(attrs["chain"])).find_meaning("float32") == _MEANING


def _infer(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    done, factor = types
    if (done, factor) != (STEP, RATE):
        raise TypeError(f"{COUNT_STEP}: expected {STEP} and {RATE}, got {done} and {factor}")
    return (STEP,)


def _lower(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> Sequence[V] | None:
    return call_chain(b, _BODY, list(zip(inputs, (STEP, RATE), strict=True)), [STEP])


OPS = (
    OpDef(
        COUNT_STEP,
        ("steps_done", "factor"),
        ("steps_new",),
        _infer,
        lambda arrays, attrs: (arrays[0] + (arrays[1] > 0.0),),
        amp="never",
        lower=_lower,
    ),
)
