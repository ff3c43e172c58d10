"""The table of calls that a front end fills: each has the function that does what the foreign operator means, made once from its settings.

What has no such function is collected, and refused all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.backends import find_backend
from aicf.errors import UnsupportedError
from aicf.nn import Buffer, Module, Parameter


class Refusal(Exception):  # noqa: N818  # not an error by itself: a network's refusals are raised together
    """A setting of an operator that is not served; the message says which."""


@dataclass(frozen=True)
class Ref:
    """A value by name, in the place of an argument."""

    name: str


class Training:
    """In the place of an argument: whether the module is in training mode."""

    def __repr__(self) -> str:
        return "training"


TRAINING = Training()
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

    def check(self) -> None:
        """Raise :class:`~aicf.errors.UnsupportedError` listing all that was refused."""
        if self.refused:
            lines = "".join(f"\n  {line}" for line in self.refused)
            raise UnsupportedError(f"{self.name}: {len(self.refused)} places cannot be imported:{lines}")


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


def list_refs(argument: Any) -> Iterator[str]:
    """Yield the names of the values that an argument holds."""
    if isinstance(argument, Ref):
        yield argument.name
    elif isinstance(argument, (list, tuple)):
        for x in argument:
            yield from list_refs(x)
    elif isinstance(argument, dict):
        yield from list_refs(list(argument.values()))


def find_last_uses(network: Network) -> list[list[str]]:
    """Return, for each call, the values that nothing reads behind it."""
    seen = set(list_refs(network.results))
    found: list[list[str]] = []
    for call in reversed(network.calls):
        here = {*call.outputs, *list_refs(list(call.inputs)), *list_refs(dict(call.keywords))} - seen
        found.append(sorted(here))
        seen |= here
    return found[::-1]


def find_segments(network: Network) -> dict[int, Segment]:
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
