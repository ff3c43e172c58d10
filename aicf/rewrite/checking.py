"""Whether two structures compute the same: both are evaluated on a few rows by the ops' meanings, in the dtypes of their values.

Products with weights that are in device memory are computed there, by frozen kernels that are in the cache: weights are not read back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.errors import RewriteError, UnsupportedError
from aicf.frontends.recording import record
from aicf.ir import Graph, Node, Value
from aicf.nn import Module
from aicf.opset import Type, find_dtype, find_op
from aicf.passes import mix_precision
from aicf.passes.context import Context
from aicf.plan import Plan
from aicf.rewrite.draft import Draft
from aicf.rewrite.rules import Rule
from aicf.rewrite.structure import Structure
from aicf.runtime import Executor
from aicf.tensor import Tensor
from contract.building import NotBuiltError

_log = logging.getLogger("aicf.rewrite")
ROWS = 8
# One unit in the last place of 1.
_UNITS = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}
Loss = Callable[..., Tensor]


def check(rule: Rule, structure: Structure, draft: Draft) -> tuple[float, float]:
    """Compare the functions before and after on a few rows; returns the largest difference and magnitude.

    Raises :class:`RewriteError` where the network cannot be evaluated, where results are no longer finite, or where a rule that keeps the
    function has changed it.
    """
    step, loss = structure.step, structure.recipe.loss
    batch = read_rows(step.executor, step.plan)
    try:
        pairs = (structure.recipe.model, structure.recipe.options.amp), (draft.model, draft.amp)
        if pairs[0][1] == pairs[1][1]:  # a rule changes one thing, and rounding would only hide what it is
            pairs = (pairs[0][0], None), (pairs[1][0], None)
        results = [compute_rows(model, loss, batch, amp) for model, amp in pairs]
    except (TypeError, ValueError, LookupError, RuntimeError) as error:
        raise RewriteError(f"{rule}: the network cannot be evaluated after this change: {error}") from error
    if _is_lost(*results):
        raise RewriteError(f"{rule}: results that were finite are infinite or NaN after it; it was not applied")
    delta, scale, bound = compare(*results)
    if rule.preserves and not delta <= bound:
        raise RewriteError(f"{rule}: changes the results by {delta:.3g}, rounding explains {bound:.3g}; it was not applied")
    return delta, scale


def read_rows(executor: Executor, plan: Plan, rows: int = ROWS) -> list[NDArray[Any]]:
    """Return the first rows of the last batch; floating inputs that are zero everywhere, as before the first batch, are drawn instead."""
    rng = np.random.Generator(np.random.Philox(key=0))
    given = zip(plan.inputs, plan.given_types, strict=True)
    arrays = [executor.read(slot).astype(find_dtype(wanted.dtype), copy=False) for (_, slot), wanted in given]
    lengths = {a.shape[0] if a.ndim else 0 for a in arrays}
    found = []
    for array in arrays:
        taken = array[:rows] if len(lengths) == 1 and 0 not in lengths else array
        is_empty = taken.dtype.name in _UNITS and not taken.any()
        found.append(rng.normal(size=taken.shape).astype(taken.dtype) if is_empty else taken)
    return found


def compute_rows(model: Module, loss: Loss, batch: Sequence[NDArray[Any]], amp: str | None = None) -> list[NDArray[Any]]:
    """Return a loss on a batch behind what the model returned on the way, in evaluation mode, by the ops' meanings; ``amp`` as compiled."""
    types = {f"x{i}": Type(a.dtype.name, a.shape) for i, a in enumerate(batch)}

    def compute(m: Module, *xs: Tensor) -> tuple[Tensor, ...]:
        with _watch(m) as seen:
            value = loss(m, *xs)
        return (*seen, value)

    with _in_evaluation(model):
        recording = record(compute, model, types, "check")
    graph = mix_precision.run(recording.graph, Context(amp=amp))
    return _interpret(graph, recording.tensors, batch)


@contextmanager
def _watch(model: Module) -> Iterator[list[Tensor]]:
    """Collect the tensors that calls of a model return."""
    seen: list[Tensor] = []
    own, compute = vars(model).get("forward"), model.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        made = compute(*args, **kwargs)
        seen.extend(t for t in (made if isinstance(made, tuple) else (made,)) if isinstance(t, Tensor))
        return made

    vars(model)["forward"] = forward
    try:
        yield seen
    finally:
        del vars(model)["forward"]
        if own is not None:
            vars(model)["forward"] = own


@contextmanager
def _in_evaluation(model: Module) -> Iterator[None]:
    before = [(module, module.training) for _, module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in before:
            module.training = mode


def _interpret(graph: Graph, tensors: Mapping[tuple[str, str], Tensor], batch: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    held = {s.value.id: tensors[s.owner, s.role] for s in graph.states}
    values: dict[int, NDArray[Any]] = {v.id: a for (_, v), a in zip(graph.inputs, batch, strict=True)}

    def read(value: Value) -> NDArray[Any]:
        if value.id not in values:
            values[value.id] = held[value.id].numpy()
        return values[value.id]

    for node in graph.nodes:
        inputs = [None if v is None else held[v.id] if v.id in held else values[v.id] for v in node.inputs]
        made = _multiply_there(node, inputs)
        if made is None:
            made = find_op(node.op).evaluate([None if v is None else read(v) for v in node.inputs], node.attrs)
        values |= {v.id: a for v, a in zip(node.outputs, made, strict=True)}
    return [read(v) for v in graph.outputs]


def _multiply_there(node: Node, inputs: Sequence[Tensor | NDArray[Any] | None]) -> Sequence[NDArray[Any]] | None:
    """Return a linear layer's results by a kernel where its weights are in device memory; None where no kernel is there for it."""
    weights = inputs[1] if node.op == "Linear" else None
    if not isinstance(weights, Tensor) or weights.backend.name != "cuda" or isinstance(inputs[0], Tensor):
        return None
    there = weights.backend
    arrays = [
        x.data if isinstance(x, Tensor) and x.backend is there else None if x is None else there.from_host(np.asarray(_to_host(x)))
        for x in inputs
    ]
    try:
        return [np.array(there.to_host(a)) for a in there.op_call(node.op, arrays, node.attrs)]
    except (NotBuiltError, UnsupportedError) as error:
        _log.warning("%s is checked on the host: %s", node.op, error)
        return None


def _to_host(values: Tensor | NDArray[Any]) -> NDArray[Any]:
    return values.numpy() if isinstance(values, Tensor) else values


def _is_lost(before: Sequence[NDArray[Any]], after: Sequence[NDArray[Any]]) -> bool:
    """Whether all results were finite, and not all are any more."""
    was_finite, is_finite = (all(bool(np.isfinite(a.astype(np.float64)).all()) for a in results) for results in (before, after))
    return was_finite and not is_finite


def compare(before: Sequence[NDArray[Any]], after: Sequence[NDArray[Any]]) -> tuple[float, float, float]:
    """Return the largest difference, the largest magnitude, and the largest difference that rounding explains.

    Results of other shapes, or NaN where there was none, differ infinitely. Rounding: each value is a sum of products in float64 that is
    rounded once, and weights are rounded once when they are scaled; 64 units in the last place are room for some dozens of layers.
    """
    if [a.shape for a in before] != [a.shape for a in after]:
        return float("inf"), 0.0, 0.0
    delta = scale = unit = 0.0
    for a, b in zip(before, after, strict=True):
        wide, other = a.astype(np.float64), b.astype(np.float64)
        good = np.isfinite(wide)
        if not np.array_equal(good, np.isfinite(other)) or not np.array_equal(wide[~good], other[~good], equal_nan=True):
            return float("inf"), scale, 0.0
        delta = max(delta, float(np.abs(wide[good] - other[good]).max(initial=0.0)))
        scale = max(scale, float(np.abs(wide)[good].max(initial=0.0)))
        unit = max(unit, _UNITS.get(a.dtype.name, 0.0))
    return delta, scale, 64.0 * unit * max(scale, 1.0)
