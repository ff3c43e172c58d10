"""Holding a kernel's declared domain against what its compiled ``supports`` says, on random calls: no memory is touched."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from harness.domain import Condition, Count, Facts, Rows, find_broken
from harness.dtypes import find_dtype
from harness.spec import AttributeValue, Launchable, Op, Problem

# Tensors are placed this far apart, so that they never overlap, and none is longer.
_SPACING = 1 << 59
_MAX_SIZE = (1 << 31) - 1
_ADDRESS_STEPS = (1, 2, 4, 8, 16, 64, 256)


class _Address:
    """A device array that is nothing but an address, a shape and strides."""

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], typestr: str) -> None:
        self.__cuda_array_interface__ = {"version": 3, "shape": shape, "strides": strides, "typestr": typestr, "data": (address, False)}


def find_disagreement(op: Op, domain: Sequence[Condition], launchable: Launchable, num_calls: int = 2000, seed: int = 1) -> str:
    """Return "" where domain and ``supports`` agree on random calls, else the first call on which they do not."""
    generator = random.Random(seed)
    for _ in range(num_calls):
        problem, facts, arguments = _make_call(op, domain, generator)
        try:
            reason = launchable.supports(**arguments)
        except (TypeError, ValueError) as error:
            reason = f"refused: {error}"
        broken = find_broken(domain, facts)
        if (broken is None) != (not reason):
            says = f"the domain says no ({broken.to_json()})" if broken else "the domain says yes"
            hears = f"supports says no ({reason})" if reason else "supports says yes"
            where = f"addresses {_describe(facts.addresses)}, strides {_describe(facts.strides)}"
            return f"{problem.name}, {where}: {says}, {hears}"
    return ""


def _describe(values: Any) -> str:
    return ", ".join(f"{k} {v % _SPACING}" for k, v in values.items())


def _make_call(op: Op, domain: Sequence[Condition], generator: random.Random) -> tuple[Problem, Facts, dict[str, Any]]:
    while True:
        attributes: dict[str, AttributeValue] = {a.name: generator.choice(a.choices) for a in op.attributes}
        names = list(dict.fromkeys(s for p in op.problems for s in p.sizes))
        problem = Problem({name: _draw_size(name, domain, generator) for name in names}, attributes)
        tensors = [t for t in op.tensors if t.present(problem)]
        views: dict[str, Any] = dict.fromkeys((t.name for t in op.tensors), None)
        addresses, strides = {}, {}
        for i, tensor in enumerate(tensors):
            shape, dtype = tensor.resolve_shape(problem), find_dtype(tensor.resolve_dtype(problem))
            step = generator.choice([s for s in _ADDRESS_STEPS if s >= dtype.itemsize])
            address = (i + 1) * _SPACING + step * generator.choice((0, 0, 1, 3))
            row = _draw_stride(tensor.name, shape[-1], domain, generator) if tensor.can_pad_rows and len(shape) > 1 else shape[-1]
            extents = (*shape[:-1], row)
            steps = tuple(dtype.itemsize * _product(extents[axis + 1 :]) for axis in range(len(shape)))
            if _product(extents) * dtype.itemsize >= _SPACING:
                break
            addresses[tensor.name] = address
            if len(shape) > 1:
                strides[tensor.name] = row
            views[tensor.name] = _Address(address, shape, steps, dtype.str)
        else:
            passed = {a.name: attributes[a.name] for a in op.attributes if a.passed}
            return problem, Facts(problem.sizes, attributes, addresses, strides), views | passed


def _product(values: Sequence[int]) -> int:
    result = 1
    for value in values:
        result *= value
    return result


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


def _draw_stride(name: str, length: int, domain: Sequence[Condition], generator: random.Random) -> int:
    """Draw a row stride: the row's length, a little more, rounded up, or about a limit that the domain has for it."""
    limits = [c.max_stride for c in domain if isinstance(c, Rows) and c.tensor == name and c.max_stride is not None]
    choices = [length, length + generator.randint(1, 9), -(-length // 8) * 8, -(-length // 4) * 4]
    return max(length, generator.choice(choices + [limit + generator.randint(-1, 1) for limit in limits]))
