"""Checking a kernel's declared domain against its compiled ``supports`` on random calls; no memory is touched."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from harness.spec import Attribute, AttributeValue, Launchable, Op, Problem, Scalar, SpecError, Strides, Tensor
from harness.spec.conditions import Condition, Count, Facts, OneOf, Rows, find_broken
from harness.spec.dtypes import find_dtype

# Tensors are placed this far apart, so that they never overlap, and none is longer.
_SPACING = 1 << 59
_MAX_SIZE = (1 << 31) - 1
# Of random calls one in so many at least must be served.
_MIN_SHARE = 10
_ADDRESS_STEPS = (1, 2, 4, 8, 16, 64, 256)


class _Address:
    """A device array that is nothing but an address, a shape and strides."""

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], typestr: str) -> None:
        self.__cuda_array_interface__ = {"version": 3, "shape": shape, "strides": strides, "typestr": typestr, "data": (address, False)}


def find_disagreement(op: Op, domain: Sequence[Condition], launchable: Launchable, num_calls: int = 2000, seed: int = 1) -> str:
    """Return "" where domain and ``supports`` agree on random calls, else the first call on which they do not.

    Calls agree in what the op ties together (``ties`` of op.py): one that is refused as a contradiction nevertheless is a disagreement too,
    and so is it where hardly any call is served, for then little was asked.
    """
    generator = random.Random(seed)
    num_served = 0
    for _ in range(num_calls):
        problem, facts, arguments = _make_call(op, domain, generator)
        try:
            reason = launchable.supports(**arguments)
        except ValueError as error:
            return f"{problem.name}: refused as a contradiction: {error}; op.py's ties say what calls agree in, and say nothing of it"
        num_served += not reason
        broken = find_broken(domain, facts)
        if (broken is None) != (not reason):
            says = f"the domain says no ({broken.to_json()})" if broken else "the domain says yes"
            hears = f"supports says no ({reason})" if reason else "supports says yes"
            where = f"addresses {_describe(facts.addresses)}, strides {_describe(facts.strides)}"
            return f"{problem.name}, {where}: {says}, {hears}"
    return "" if num_served * _MIN_SHARE >= num_calls else f"only {num_served} of {num_calls} random calls are served: too few to tell"


def _describe(values: Any) -> str:
    return ", ".join(f"{k} {v % _SPACING if isinstance(v, int) else v}" for k, v in values.items())


def _make_call(op: Op, domain: Sequence[Condition], generator: random.Random) -> tuple[Problem, Facts, dict[str, Any]]:
    """Draw a call without contradiction: any at all, or one that the domain holds for but perhaps in one attribute, size or tensor."""
    sizes = list(dict.fromkeys(s for p in op.problems for s in p.sizes))
    names = [*(a.name for a in op.attributes), *sizes, *(t.name for t in op.tensors)]
    while True:
        free = set(names) if generator.random() < 0.3 else {generator.choice(names)}
        attributes = {a.name: generator.choice(_list_values(a, domain, free)) for a in op.attributes}
        drawn = {name: _draw_size(name, domain, generator) for name in sizes}
        # A derived size follows; what it follows from is drawn as it comes.
        fitted = {name: s if name in free else _fit_size(name, s, domain) for name, s in drawn.items()}
        try:
            agreed = op.settle(fitted, attributes)
            problem = Problem(agreed.sizes, agreed.attributes, scalars={s.name: _draw_scalar(s, generator) for s in op.scalars})
        except SpecError:
            continue  # a derived size would be 0
        attributes = dict(agreed.attributes)
        tensors = [t for t in op.tensors if t.present(problem)]
        placed = [_place(t, i, problem, domain, generator, fits=t.name not in free) for i, t in enumerate(tensors)]
        if all(p is not None for p in placed):
            break
    views: dict[str, Any] = dict.fromkeys((t.name for t in op.tensors), None)
    addresses: dict[str, int] = {}
    strides: dict[str, int | tuple[int, ...]] = {}
    for tensor, place in zip(tensors, placed, strict=True):
        assert place is not None
        views[tensor.name], addresses[tensor.name], row = place
        if row is not None:
            strides[tensor.name] = row
    return problem, Facts(problem.sizes, attributes, addresses, strides), views | op.list_passed(problem)


def _draw_scalar(scalar: Scalar, generator: random.Random) -> float:
    if scalar.choices:
        return generator.choice(scalar.choices)
    return generator.randint(int(scalar.low), int(scalar.high)) if scalar.is_whole else generator.uniform(scalar.low, scalar.high)


def _place(
    tensor: Tensor, index: int, problem: Problem, domain: Sequence[Condition], generator: random.Random, *, fits: bool
) -> tuple[_Address, int, int | tuple[int, ...] | None] | None:
    """Give a tensor an address and the strides that conditions ask of (elements); None where it would be too long."""
    rules = [c for c in domain if isinstance(c, Rows) and c.tensor == tensor.name]
    shape, dtype = tensor.resolve_shape(problem), find_dtype(tensor.resolve_dtype(problem))
    least = max([dtype.itemsize, *(r.address_bytes for r in rules if fits)])
    step = generator.choice([s for s in _ADDRESS_STEPS if s >= least])
    address = (index + 1) * _SPACING + step * generator.choice((0, 0, 1, 3))
    strides = _draw_strides(tensor, shape, rules if fits else [], rules, generator)
    if dtype.itemsize * (1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))) >= _SPACING:
        return None
    view = _Address(address, shape, tuple(dtype.itemsize * s for s in strides), dtype.str)
    asked = None if len(shape) < 2 else strides if tensor.is_strided else strides[-2]
    return view, address, asked


def _draw_strides(
    tensor: Tensor, shape: tuple[int, ...], kept: Sequence[Rows], rules: Sequence[Rows], generator: random.Random
) -> tuple[int, ...]:
    """Draw the strides of a tensor in elements; those that conditions ask of keep to the rules ``kept``."""
    order = list(range(len(shape)))
    if tensor.is_strided:
        moved = order[: len(shape) - (tensor.strides is Strides.OUTER)]
        order = [*generator.sample(moved, len(moved)), *order[len(moved) :]]
    strides, step = [1] * len(shape), 1
    for dim in reversed(order):
        is_row = tensor.can_pad_rows and dim == len(shape) - 2
        if is_row or (tensor.is_strided and dim != len(shape) - 1):
            step = _draw_stride(step, rules, generator)
            for rule in kept:
                step = -(-step // rule.stride_multiple) * rule.stride_multiple
        strides[dim] = step
        step *= shape[dim]
    return tuple(strides)


def _list_values(attribute: Attribute, domain: Sequence[Condition], free: set[str]) -> list[AttributeValue]:
    """Return the values to draw from: those that the domain allows, or all."""
    rules = [c for c in domain if isinstance(c, OneOf) and c.attribute == attribute.name and attribute.name not in free]
    return [v for v in attribute.choices if all(v in r.values for r in rules)] or list(attribute.choices)


def _draw_size(name: str, domain: Sequence[Condition], generator: random.Random) -> int:
    """Draw a size: small, of any magnitude, a round number, or about a limit that the domain has for it."""
    limits = [c.max * c.steps[name] for c in domain if isinstance(c, Count) and name in c.steps and c.max is not None]
    kind = generator.randrange(4 if limits else 3)
    if kind == 0:
        size = generator.randint(1, 40)
    elif kind == 1:
        size = int(2 ** generator.uniform(0, 31))
    elif kind == 2:
        size = generator.randint(1, 64) * generator.choice((4, 8, 64, 128))
    else:
        size = generator.choice(limits) + generator.randint(-2, 2)
    return min(max(size, 1), _MAX_SIZE)


def _fit_size(name: str, size: int, domain: Sequence[Condition]) -> int:
    """Return a size that the domain's rules for it alone allow."""
    for rule in (c for c in domain if isinstance(c, Count) and list(c.steps.items()) == [(name, 1)]):
        size = min(size, rule.max or size)
        size = max(size // rule.multiple * rule.multiple, rule.multiple, rule.min)
    return size


def _draw_stride(length: int, rules: Sequence[Rows], generator: random.Random) -> int:
    """Draw a row stride: the row's length, a little more, rounded up, or about a limit that the domain has for it."""
    choices = [length, length + generator.randint(1, 9), length + 4, -(-length // 8) * 8, -(-length // 4) * 4]
    return max(length, generator.choice(choices + [r.max_stride + generator.randint(-1, 1) for r in rules if r.max_stride is not None]))
