"""The module that replays a table of calls (:mod:`aicf.frontends.network`) by this package's own functions.

Values of a replay are tensors, or numbers of the host (shapes, axes), with which Python computes while the graph is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from aicf import functional as F
from aicf.backends import Backend, find_default
from aicf.errors import UnsupportedError
from aicf.frontends.network import Call, Network, Ref, Refusal, Segment, Training, clean_path, find_last_uses, find_segments
from aicf.modes import MODES, placed
from aicf.nn import Module
from aicf.opset import type_of
from aicf.tensor import Tensor, make_scalar

# How many different numbers become constants of a graph, one by one.
MAX_PARTS = 64


class Part(Module):
    """A module of an imported network: it owns tensors, and the network computes with them.

    One that is a function of one value has a segment, and may be called, replaced, or put into another module.
    """

    _segment: Segment | None = None

    @property
    def is_function(self) -> bool:
        """Whether the part can be called."""
        return self._segment is not None

    def forward(self, x: Any) -> Any:
        """Return the value that the part makes of one; raises TypeError for a part that is no function of one value."""
        segment = self._segment
        if segment is None:
            raise TypeError("a part of an imported network that is no function of one value cannot be called")
        values = {**segment.constants, segment.source: x, **{name: getattr(self, attribute) for name, attribute in segment.tensors}}
        for call in segment.calls:
            with placed(call.place):
                arguments, keywords = (_fill(x, values, self.training) for x in (call.inputs, dict(call.keywords)))
                _store(call, _run(call, arguments, keywords), values)
        return values[segment.result]

    def give_up(self) -> None:
        """Have no tensors any more: another module is in the part's place."""
        for name in [name for name, value in vars(self).items() if isinstance(value, Tensor)]:
            delattr(self, name)


class Imported(Module):
    """A network from elsewhere; it runs, trains, compiles and is recorded like any other module.

    Called with the source's inputs, in its order or by name, it returns its outputs. Raises :class:`~aicf.errors.UnsupportedError` listing
    all that the front end refused.
    """

    def __init__(self, network: Network) -> None:
        network.check()
        self._network = network
        for call in network.calls:  # parts are shown in the order in which they run
            self._find_part(call.owner)
        for path, tensor in network.tensors.items():
            owner, _, name = path.rpartition(".")
            setattr(self._find_part(owner), name, tensor)
        self._owned = {name: (self._find_part(path.rpartition(".")[0]), path.rpartition(".")[2]) for name, path in network.owners.items()}
        self._callers = [self._find_part(call.owner) for call in network.calls]
        self._last = find_last_uses(network)
        self._segments = find_segments(network)
        for start, segment in self._segments.items():
            part = self._callers[start]
            if isinstance(part, Part):
                part._segment = segment

    def _find_part(self, path: str) -> Module:
        part: Module = self
        for name in clean_path(path).split(".") if path else ():
            inner = vars(part).get(name)
            if inner is None:
                inner = Part()
                setattr(part, name, inner)
            if not isinstance(inner, Module):
                break
            part = inner
        return part

    def describe(self) -> str:
        """Return where it is from."""
        return self._network.name

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Return the network's outputs. Raises TypeError for inputs that it does not have, and what a call raises with its place."""
        values = self._bind(inputs, named)
        backend = next((v.backend for v in values.values() if isinstance(v, Tensor)), None) or find_default()
        done = 0
        for i, (call, caller, gone) in enumerate(zip(self._network.calls, self._callers, self._last, strict=True)):
            segment = self._segments.get(i)
            if segment is not None and (present := self._find_module(call.owner)) is not caller:
                values[segment.result] = present(values[segment.source])
                done = i + len(segment.calls)
            if i < done:
                continue  # another module has made what they would
            arguments = _fill(call.inputs, values, self.training)
            keywords = _fill(dict(call.keywords), values, self.training)
            with placed(call.place), nullcontext() if MODES.recorder is None else MODES.recorder.scope(caller):
                made = _run(call, arguments, keywords)
            _store(call, made, values)
            for name in gone:
                values.pop(name, None)
        return _lift_results(_fill(self._network.results, values, self.training), backend)

    def _find_module(self, path: str) -> Module:
        """Return what is in the place of a part now."""
        found: Module = self
        for name in clean_path(path).split("."):
            found = getattr(found, name)
        return found

    def _bind(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        network = self._network
        given = {**dict(zip(network.inputs, inputs, strict=False)), **named}
        values: dict[str, Any] = {**network.defaults, **given, **network.constants}
        missing, unknown = [n for n in network.inputs if n not in values], [n for n in named if n not in network.inputs[len(inputs) :]]
        if missing or unknown or len(inputs) > len(network.inputs):
            told = f"missing {', '.join(missing) or 'none'}, unknown {', '.join(unknown) or 'none'}, {len(inputs)} by place"
            raise TypeError(f"{network.name}: takes the inputs {', '.join(network.inputs) or 'none'}, got {told}")
        for name, (dtype, shape) in network.types.items():
            found = values[name]
            if not isinstance(found, Tensor):
                raise TypeError(f"{network.name}: input {name}: expected a tensor, got {type(found).__name__}; Tensor(values) makes one")
            fits = len(found.shape) == len(shape) and all(n in (None, m) for n, m in zip(shape, found.shape, strict=True))
            if not fits or found.dtype != dtype:
                wanted = f"{dtype}[{','.join('any' if n is None else str(n) for n in shape)}]"
                raise ValueError(f"{network.name}: input {name}: expected {wanted}, got {found.type}")
        # A part that another module has taken the place of has no tensors.
        held = {name: vars(part).get(attribute) for name, (part, attribute) in self._owned.items()}
        return values | {name: tensor for name, tensor in held.items() if tensor is not None}


def _run(call: Call, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    try:
        return call.run(*arguments, **keywords)
    except Refusal as error:
        raise UnsupportedError(f"{call.operator}: {call.place}: {error}") from None
    except (TypeError, ValueError, IndexError) as error:
        if type(error) not in (TypeError, ValueError, IndexError):
            raise
        raise type(error)(f"{call.operator}: {call.place}: {error}") from error


def _store(call: Call, made: Any, values: dict[str, Any]) -> None:
    values.update({call.outputs[0]: made} if len(call.outputs) == 1 else zip(call.outputs, made, strict=False))


def _fill(argument: Any, values: Mapping[str, Any], training: bool) -> Any:
    """Return an argument with values in the place of their names."""
    if isinstance(argument, Ref):
        return values[argument.name]
    if isinstance(argument, Training):
        return training
    if isinstance(argument, (list, tuple)):
        return type(argument)(_fill(x, values, training) for x in argument)
    if isinstance(argument, dict):
        return {key: _fill(x, values, training) for key, x in argument.items()}
    return argument


def lift(array: Any, backend: Backend) -> Tensor:
    """Return numbers of the host as a tensor: as constants of the graph while one is recorded.

    Raises :class:`Refusal` for many different numbers there: what is found from shapes while recording is no input.
    """
    values = np.asarray(array)
    if MODES.recorder is None:
        return Tensor(values, backend=backend)
    dtype = type_of(values).dtype
    if values.size == 0 or bool(np.all(values == values.flat[0])):
        number = values.flat[0].item() if values.size else 0
        return F.broadcast(make_scalar(number, dtype, backend), values.shape)
    if values.size > MAX_PARTS:
        raise Refusal(f"{values.size} numbers are found from shapes while a program is recorded; make them an input of the network")
    parts = [make_scalar(number.item(), dtype, backend).reshape(1) for number in values.reshape(-1)]
    return F.concat(parts).reshape(*values.shape)


def _lift_results(results: Any, backend: Backend) -> Any:
    """Return results with tensors in the place of the host's numbers."""
    if isinstance(results, (np.ndarray, np.generic, int, float)):
        return lift(results, backend)
    if isinstance(results, (list, tuple)):
        return type(results)(_lift_results(x, backend) for x in results)
    if isinstance(results, dict):
        return {key: _lift_results(x, backend) for key, x in results.items()}
    return results
