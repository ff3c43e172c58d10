"""Networks from elsewhere: a table of calls with their places, and the module that replays it by this package's own functions.

A front end fills a :class:`Network`: each call has the function that does what the foreign operator means, made once from the operator's
settings. What has no such function is collected, and refused all at once. Values of a replay are tensors, or numbers of the host (shapes,
axes), with which Python computes while the graph is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf import functional as F
from aicf.backends import Backend, find_backend, find_default
from aicf.errors import UnsupportedError
from aicf.modes import MODES, placed
from aicf.nn import Buffer, Module, Parameter
from aicf.opset import type_of
from aicf.tensor import Tensor, make_scalar


class Refusal(Exception):  # noqa: N818  # not an error by itself: a network's refusals are raised together
    """A setting of an operator that is not served; the message says which."""


@dataclass(frozen=True)
class Ref:
    """A value by name, in the place of an argument."""

    name: str


class _Training:
    """In the place of an argument: whether the module is in training mode."""

    def __repr__(self) -> str:
        return "training"


TRAINING = _Training()
# How many different numbers become constants of a graph, one by one.
MAX_PARTS = 64
# What an imported module has for itself.
_OWN = ("_network", "_owned", "_callers", "_last", "_segments", "_segment")


@dataclass(frozen=True)
class Call:
    """One call of the table. ``inputs`` and ``keywords`` hold :class:`Ref` where a value is meant, also in lists.

    ``run`` returns one value, or several where ``outputs`` has several names. ``place`` says where the call stands in the source, and
    ``owner`` is the path of the module that it belongs to. A source in which calls ``write`` to their first argument says so, and which
    results may share its memory (``is_view``).
    """

    operator: str
    run: Callable[..., Any]
    inputs: tuple[Any, ...]
    outputs: tuple[str, ...]
    place: str
    owner: str = ""
    keywords: Mapping[str, Any] = field(default_factory=dict)
    writes: bool = False
    is_view: bool = False


@dataclass
class Network:
    """A network as a front end reads it.

    ``tensors`` are parameters and buffers by owner path, and ``owners`` these paths by value. ``constants`` are values known now, and
    ``defaults`` those of inputs that need not be given. ``types`` has dtype and shape of inputs that are declared, None for an extent that
    may be any. ``results`` is what a call of the network returns, with :class:`Ref` for values.
    """

    name: str
    inputs: list[str] = field(default_factory=list)
    types: dict[str, tuple[str, tuple[int | None, ...]]] = field(default_factory=dict)
    results: Any = ()
    calls: list[Call] = field(default_factory=list)
    tensors: dict[str, Parameter | Buffer] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    def own(self, name: str, path: str, tensor: Parameter | Buffer) -> None:
        """Add a tensor of the network under a path, which is changed where it cannot be an attribute's or is taken."""
        if self.tensors.get(clean_path(path)) is not tensor:
            path = _make_path(path, self.tensors)
            self.tensors[path] = tensor
        self.owners[name] = clean_path(path)

    def refuse(self, operator: str, place: str, reason: str) -> None:
        """Note what cannot be imported."""
        self.refused.append(f"{operator}: {place}: {reason}")

    def make(self) -> Imported:
        """Return the module; raises :class:`~aicf.errors.UnsupportedError` listing all that was refused."""
        if self.refused:
            lines = "".join(f"\n  {line}" for line in self.refused)
            raise UnsupportedError(f"{self.name}: {len(self.refused)} places cannot be imported:{lines}")
        return Imported(self)


def clean_path(path: str) -> str:
    """Return a path of which each part can be an attribute of an imported module."""
    parts = [p for p in path.replace("/", ".").replace("::", ".").split(".") if p]
    return ".".join(f"{p}_" if hasattr(Module, p) or p in _OWN else p for p in parts)


def _make_path(path: str, taken: Mapping[str, Any]) -> str:
    """Return a clean path that is neither taken nor a part of one that is."""
    wanted = clean_path(path) or "value"
    made, count = wanted, 1
    while any(other == made or other.startswith(f"{made}.") or made.startswith(f"{other}.") for other in taken):
        made, count = f"{wanted}_{count}", count + 1
    return made


def adopt(array: NDArray[Any], *, trained: bool) -> Parameter | Buffer:
    """Return a parameter, or a buffer, of an array's own memory; a copy only where that cannot be written to or is not contiguous."""
    fits = array.flags.writeable and array.flags.c_contiguous and array.dtype.isnative
    data = array if fits else np.array(array, array.dtype.newbyteorder("="), order="C")
    kind = Parameter if trained else Buffer
    return kind.wrap(data, find_backend("numpy")).require_grad(trained)


@dataclass(frozen=True)
class Segment:
    """The calls of a part where it is a function of one value: they stand in a row, and others read one value of theirs.

    ``tensors`` are those of the part that they read, by name and attribute, and ``constants`` are values known at import.
    """

    calls: tuple[Call, ...]
    source: str
    result: str
    tensors: tuple[tuple[str, str], ...]
    constants: Mapping[str, Any]


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

    Called with the source's inputs, in its order or by name, it returns its outputs.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        for call in network.calls:  # parts are shown in the order in which they run
            self._find_part(call.owner)
        for path, tensor in network.tensors.items():
            owner, _, name = path.rpartition(".")
            setattr(self._find_part(owner), name, tensor)
        self._owned = {name: (self._find_part(path.rpartition(".")[0]), path.rpartition(".")[2]) for name, path in network.owners.items()}
        self._callers = [self._find_part(call.owner) for call in network.calls]
        self._last = _find_last_uses(network)
        self._segments = _find_segments(network)
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
    if isinstance(argument, _Training):
        return training
    if isinstance(argument, (list, tuple)):
        return type(argument)(_fill(x, values, training) for x in argument)
    if isinstance(argument, dict):
        return {key: _fill(x, values, training) for key, x in argument.items()}
    return argument


def list_refs(argument: Any) -> Iterator[str]:
    """Yield the names of the values that an argument holds."""
    if isinstance(argument, Ref):
        yield argument.name
    elif isinstance(argument, (list, tuple)):
        for x in argument:
            yield from list_refs(x)
    elif isinstance(argument, dict):
        yield from list_refs(list(argument.values()))


def _find_last_uses(network: Network) -> list[list[str]]:
    """Return, for each call, the values that nothing reads behind it."""
    seen = set(list_refs(network.results))
    found: list[list[str]] = []
    for call in reversed(network.calls):
        here = {*call.outputs, *list_refs(list(call.inputs)), *list_refs(dict(call.keywords))} - seen
        found.append(sorted(here))
        seen |= here
    return found[::-1]


def _find_segments(network: Network) -> dict[int, Segment]:
    """Return the segments of parts that are functions of one value, by the number of their first call."""
    by_owner: dict[str, list[int]] = {}
    for i, call in enumerate(network.calls):
        by_owner.setdefault(call.owner, []).append(i)
    readers: dict[str, set[int]] = {}
    for i, call in enumerate(network.calls):
        for name in (*list_refs(list(call.inputs)), *list_refs(dict(call.keywords))):
            readers.setdefault(name, set()).add(i)
    results, found = set(list_refs(network.results)), {}
    inner = {clean_path(owner) for owner in by_owner} | {place.rpartition(".")[0] for place in network.owners.values()}
    for owner, numbers in by_owner.items():
        calls = tuple(network.calls[i] for i in numbers)
        if not owner or numbers != list(range(numbers[0], numbers[-1] + 1)) or any(call.writes or call.is_view for call in calls):
            continue
        path, made = clean_path(owner), {name for call in calls for name in call.outputs}
        if any(f"{place}.".startswith(f"{path}.") and place != path for place in inner):
            continue  # others are within it
        read = dict.fromkeys(name for name, places in readers.items() if places & set(numbers) and name not in made)
        own = [(name, network.owners[name].rpartition(".")) for name in read if name in network.owners]
        sources = [name for name in read if name not in network.owners and name not in network.constants]
        outside = [name for name in made if name in results or readers.get(name, set()) - set(numbers)]
        if len(sources) == len(outside) == 1 and all(place == path for _, (place, _, _) in own):
            constants = {name: network.constants[name] for name in read if name in network.constants}
            tensors = tuple((name, attribute) for name, (_, _, attribute) in own)
            found[numbers[0]] = Segment(calls, sources[0], outside[0], tensors, constants)
    return found


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
