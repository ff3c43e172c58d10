"""Random graphs: networks of ops on small values, and steps and buffers for the planner."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from aicf.ir import Graph, Rewriter, Value
from aicf.opset import Type

UNARY = ("neg", "tanh", "sigmoid", "relu", "gelu_erf", "silu", "square", "sin", "abs")
BINARY = ("add", "sub", "mul", "max")


def make_network(seed: int, dtype: str = "float64") -> Graph:
    """Return a graph with inputs, parameters, 5 to 20 calls of which some are dead, repeated or neutral, a scalar output and one more."""
    rng = random.Random(seed)
    rewriter = Rewriter(Graph(f"random {seed}", (), (), (), ()))
    shapes = [(3, 4), (4,), (3, 1), (4, 4)]
    inputs = tuple((f"x{i}", Value(rewriter.make_id(), Type(dtype, rng.choice(shapes)))) for i in range(rng.randint(1, 3)))
    rewriter.graph = Graph(f"random {seed}", inputs, (), (), ())
    states = [rewriter.add_state(f"p{i}", "parameter", Type(dtype, rng.choice(shapes))) for i in range(rng.randint(1, 3))]
    values = [*(v for _, v in inputs), *states]
    for _ in range(rng.randint(5, 20)):
        made = rng.choice(MAKERS)(rewriter, rng, values)
        if made is not None:
            values.append(made)
    total = None
    for value in (*rng.sample(values, min(4, len(values))), *states):
        part = rewriter.reduce("mean", value, tuple(range(len(value.type.shape)))) if value.type.shape else value
        total = part if total is None else rewriter.add(total, part)
    assert total is not None
    new = rewriter.scale(states[0], 0.5)
    return rewriter.finish([total, values[-1]], [(states[0], new)])


def _unary(b: Rewriter, rng: random.Random, values: list[Value]) -> Value:
    return b.each(rng.choice(UNARY), rng.choice(values))


def _binary(b: Rewriter, rng: random.Random, values: list[Value]) -> Value | None:
    x, y = rng.choice(values), rng.choice(values)
    try:
        return b.each(rng.choice(BINARY), x, y)
    except ValueError:
        return None  # their shapes do not broadcast


def _neutral(b: Rewriter, rng: random.Random, values: list[Value]) -> Value:
    x = rng.choice(values)
    function, number = rng.choice((("mul", 1.0), ("div", 1.0), ("sub", 0.0), ("add", 0.0), ("mul", 0.5)))
    return b.each(function, x, b.full(number, x))


def _constant(b: Rewriter, rng: random.Random, values: list[Value]) -> Value:
    x = rng.choice(values)
    number = b.each("exp", b.scale(b.full(rng.uniform(-1, 1), x), 0.5))
    return b.add(x, number)


def _view(b: Rewriter, rng: random.Random, values: list[Value]) -> Value:
    x = rng.choice(values)
    shape = x.type.shape
    choice = rng.randrange(4)
    if choice == 0:
        return b.one("Reshape", b.one("Reshape", x, shape=(-1,)), shape=shape)
    if choice == 1:
        order = tuple(rng.sample(range(len(shape)), len(shape)))
        return b.one("Permute", b.one("Permute", x, order=order), order=order)
    if choice == 2:
        return b.one("Broadcast", x, shape=(2, *shape) if len(shape) < 3 else shape)
    return b.one("Slice", x, starts=(0,) * len(shape), stops=shape)


def _reduce(b: Rewriter, rng: random.Random, values: list[Value]) -> Value | None:
    x = rng.choice(values)
    rank = len(x.type.shape)
    return b.reduce(rng.choice(("sum", "mean")), x, (rng.randrange(rank),), keep=rng.random() < 0.5) if rank else None


def _linear(b: Rewriter, rng: random.Random, values: list[Value]) -> Value | None:
    x, w = rng.choice(values), rng.choice([v for v in values if len(v.type.shape) == 2] or values)
    if len(w.type.shape) != 2 or not x.type.shape or x.type.shape[-1] != w.type.shape[1]:
        return None
    z = b.one("Linear", x, w, None)
    return b.each(rng.choice(("relu", "gelu_tanh", "silu")), z)


def _softmax(b: Rewriter, rng: random.Random, values: list[Value]) -> Value | None:
    x = rng.choice(values)
    return b.one(rng.choice(("Softmax", "LogSoftmax")), x) if x.type.shape else None


def _twice(b: Rewriter, rng: random.Random, values: list[Value]) -> Value | None:
    """Return the product of a call with itself, made anew: what common calls are merged for."""
    x, function = rng.choice(values), rng.choice(UNARY)
    return b.mul(b.each(function, x), b.each(function, x))


MAKERS: tuple[Callable[[Rewriter, random.Random, list[Value]], Value | None], ...] = (
    _unary,
    _binary,
    _neutral,
    _constant,
    _view,
    _reduce,
    _linear,
    _softmax,
    _twice,
)


def make_chains(seed: int) -> Graph:
    """Return a float32 graph of elementwise calls, broadcasts, casts and masks, with numbers, rows and columns among matrices."""
    rng = random.Random(seed)
    rewriter = Rewriter(Graph(f"chains {seed}", (), (), (), ()))
    shapes = [(5, 6), (5, 6), (6,), (5, 1), ()]
    inputs = tuple((f"x{i}", Value(rewriter.make_id(), Type("float32", rng.choice(shapes)))) for i in range(rng.randint(2, 4)))
    rewriter.graph = Graph(f"chains {seed}", inputs, (), (), ())
    counter = rewriter.add_state("random.0", "random", Type("uint64", (2,)))
    steps = rewriter.add_state("step", "control", Type("int64", ()))
    count = rewriter.add(steps, rewriter.one("Full", value=1, dtype="int64"))
    values = [*(v for _, v in inputs), rewriter.cast(count, "float32")]
    for _ in range(rng.randint(4, 24)):
        x = rng.choice(values)
        kind = rng.randrange(7)
        if kind == 0:
            values.append(rewriter.each(rng.choice(UNARY), x))
        elif kind == 1:
            values.append(rewriter.scale(x, rng.uniform(-1, 1)))
        elif kind == 2:
            values.append(rewriter.each("where", rewriter.each("lt", x, rng.choice([x, inputs[0][1]])), x, rewriter.full(0.5, x)))
        elif kind == 3:
            values.append(rewriter.cast(rewriter.cast(x, "bfloat16"), "float32"))
        elif kind == 4 and x.type.shape == (5, 6):
            values.append(rewriter.one("Dropout", x, counter, p=0.25, skip=rng.randrange(2)))
        elif kind == 5 and x.type.shape != (5, 6):
            values.append(rewriter.broadcast(x, (5, 6)))
        elif (made := _binary(rewriter, rng, [*values[-4:], x])) is not None:
            values.append(made)
    return rewriter.finish(rng.sample(values, min(3, len(values))), [(steps, count), (counter, rewriter.one("Advance", counter, by=2))])


def make_values(graph: Graph, seed: int) -> tuple[list[np.ndarray], dict[tuple[str, str], np.ndarray]]:
    """Return random inputs and states."""
    rng = np.random.default_rng(seed)
    inputs = [rng.normal(size=v.type.shape).astype(v.type.dtype) for _, v in graph.inputs]
    return inputs, {(s.owner, s.role): rng.normal(size=s.value.type.shape).astype(s.value.type.dtype) for s in graph.states}


def make_dag(rng: random.Random, num_streams: int) -> tuple[Graph, dict[int, int]]:
    """Return a graph of chains and joins whose ops matter little, with updates of states, and a stream for each node."""
    rewriter = Rewriter(Graph("dag", (), (), (), ()))
    sizes = [(rng.randint(1, 600),) for _ in range(3)]
    inputs = (("x", Value(rewriter.make_id(), Type("float32", rng.choice(sizes)))),)
    rewriter.graph = Graph("dag", inputs, (), (), ())
    states = [rewriter.add_state(f"p{i}", "parameter", Type("float32", rng.choice(sizes))) for i in range(2)]
    values = [inputs[0][1], *states]
    for _ in range(rng.randint(3, 14)):
        x = rng.choice(values[-5:])
        kind = rng.randrange(5)
        if kind == 0:
            values.append(rewriter.one("Reshape", x, shape=(*x.type.shape, 1) if len(x.type.shape) < 2 else (-1,)))
        elif kind == 1:
            values.append(rewriter.one("Concat", x, x, axis=0))
        else:
            same = [v for v in values if v.type == x.type]
            values.append(rewriter.each("add", x, rng.choice(same)))
    updates = []
    for state in states:
        fitting = [v for v in values if v.type == state.type]
        if rng.random() < 0.7:
            updates.append((state, rng.choice(fitting)))
    graph = rewriter.finish(rng.sample(values, rng.randint(1, 3)), updates)
    return graph, {node.id: rng.randrange(num_streams) for node in graph.nodes}
