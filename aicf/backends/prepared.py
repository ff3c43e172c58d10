"""Calls that were made before: launches, their parameters but for addresses, and what their outputs are. Nothing is decided again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aicf.backends.calls import FrozenCall
from aicf.errors import LaunchError
from aicf.ops.extension import load_extension
from device.layout import Layout
from device.memory import RuntimeArray
from device.runtime import RuntimeDevice

Array = RuntimeArray  # those of this backend
# Arrays lie further apart than any is large: an address tells which one it stands for.
_MARK_BITS = 48


@dataclass(slots=True)
class _Step:
    """New arrays, by layout and the place of what they begin as a copy of, and the launch behind that; or a constant."""

    makes: list[tuple[Layout, int | None]]
    constant: Array | None = None
    launcher: Any = None
    workspace_bytes: int = 0
    name: str = ""


class Trace:
    """What a call does: each array has a place, the inputs first, then what is made, in order."""

    def __init__(self, inputs: Sequence[Array | None]) -> None:
        self._num_inputs = self._count = len(inputs)
        self._steps: list[_Step] = []
        self._held: list[Any] = list(inputs)  # their ids are theirs alone
        self._places = {id(x): i for i, x in enumerate(inputs) if x is not None}
        self._is_kept = True

    def keep(self, constant: Array) -> None:
        """Note an array that is the same every time."""
        self._add([constant], _Step([], constant))

    def _add(self, made: Sequence[Array], step: _Step) -> None:
        self._places.update({id(x): self._count + i for i, x in enumerate(made)})
        self._count += len(made)
        self._held.extend(made)
        self._steps.append(step)

    def drop(self) -> None:
        """Let the call not be kept: of other arrays it does something else."""
        self._is_kept = False

    def view(self, source: Array, made: Array) -> None:
        """Note another shape of the same memory."""
        self._places[id(made)] = self._find(source)
        self._held.append(made)

    def _find(self, array: Array) -> int:
        return self._places[id(array)]

    def make(self, made: Sequence[Array], sources: Sequence[Array | None]) -> _Step:
        """Note new arrays, each of which begins as a copy of its source."""
        step = _Step([(x.layout, None if source is None else self._find(source)) for x, source in zip(made, sources, strict=True)])
        self._add(made, step)
        return step

    def launch(self, call: FrozenCall, inputs: Sequence[Array | None], outputs: Sequence[Array], sources: Sequence[Array | None]) -> None:
        """Note a launch that was made, with its outputs."""
        step = self.make(outputs, sources)
        places = [None if x is None else self._find(x) for x in (*inputs, *outputs)]
        library = call.handle.load()
        params, pointers = _find_pointers(call, len(inputs), len(outputs), places)
        step.launcher = load_extension().Launcher(library.launch_address, params, pointers)
        step.workspace_bytes, step.name = call.handle.workspace_bytes, library.name

    def finish(self, outputs: Sequence[Array]) -> Prepared | None:
        """Return the call, to be made again; None where a constant goes out, which would have to be an array of its own each time.

        None, too, where it was dropped.
        """
        if not self._is_kept:
            return None
        found = [(self._find(x), x.layout) for x in outputs]
        wanted, at = dict(reversed(found)), self._num_inputs
        for step in self._steps:
            if step.constant is not None and at in wanted:
                return None
            # Arrays are made in the shape in which they go out.
            step.makes = [(wanted.get(at + i, layout), source) for i, (layout, source) in enumerate(step.makes)]
            at += len(step.makes) + (step.constant is not None)
        made = [(i, None if i >= self._num_inputs and wanted[i] is layout else layout) for i, layout in found]
        if made == [(self._num_inputs, None)] and len(self._steps) == 1:
            (only,) = self._steps
            if only.launcher is not None and [source for _, source in only.makes] == [None]:
                return OneLaunch(only)
        return Prepared(self._steps, made)


def _find_pointers(
    call: FrozenCall, num_inputs: int, num_outputs: int, places: Sequence[int | None]
) -> tuple[bytes, tuple[tuple[int, int, int, int], ...]]:
    """Return a call's parameters, and where addresses go: (offset, place of the array, bytes into it, what it is a multiple of)."""
    marks = [None if place is None else (i + 1) << _MARK_BITS for i, place in enumerate(places)]
    params = call.make_params(marks[:num_inputs], [m or 0 for m in marks[num_inputs : num_inputs + num_outputs]])
    alignments, row = call.handle.alignment_bytes, call.handle.interface.row
    steps = {t["field"]: alignments.get(t["name"], 1) for t in row["tensors"]}
    pointers = []
    for each in row["fields"]:
        name = each["name"]
        if each["type"] == "pointer" and (address := getattr(params, name)):
            mark, add = divmod(address, 1 << _MARK_BITS)
            place = places[mark - 1]
            assert place is not None
            pointers.append((getattr(type(params), name).offset, place, add, steps[name]))
    return bytes(params), tuple(pointers)


class Prepared:
    """A call, of no launch, one or several, whose kernels are loaded."""

    __slots__ = ("_outputs", "_steps")

    def __init__(self, steps: Sequence[_Step], outputs: Sequence[tuple[int, Layout | None]]) -> None:
        """Take steps, and the outputs: the places of their arrays, and their layouts where these are others than the arrays'."""
        self._steps = [(step.makes, step.constant, step.launcher, step.workspace_bytes, step.name) for step in steps]
        self._outputs = outputs

    def run(self, device: RuntimeDevice, inputs: Sequence[Any | None]) -> tuple[Any, ...] | None:
        """Return the outputs, launched on the default stream; None, with nothing of use done, where a kernel cannot take an address.

        Raises :class:`~aicf.errors.LaunchError` where one refuses.
        """
        arrays: list[Any] = [*inputs]
        empty = device.empty_queued
        for makes, constant, launcher, workspace_bytes, name in self._steps:
            if constant is not None:
                arrays.append(constant)
                continue
            for layout, source in makes:
                made = empty(layout)
                if source is not None:
                    device.copy(made.queued_address, arrays[source].queued_address, made.span_bytes)
                arrays.append(made)
            if launcher is None:
                continue
            workspace = device.allocate_queued(workspace_bytes) if workspace_bytes else None
            device.bind_thread()
            done = launcher(arrays, 0 if workspace is None else workspace.queued_address)
            if done is False:
                return None
            if done is not True:
                raise _make_error(name, done)
        outputs = []
        for place, wanted in self._outputs:
            array = arrays[place]
            outputs.append(array if wanted is None else array.reshaped(wanted))
        return tuple(outputs)


class OneLaunch(Prepared):
    """A call of one launch that makes one array, as most are: the same by the shortest way."""

    __slots__ = ("_launcher", "_layout", "_name", "_workspace_bytes")

    def __init__(self, step: _Step) -> None:
        ((self._layout, _),) = step.makes
        self._launcher, self._workspace_bytes, self._name = step.launcher, step.workspace_bytes, step.name

    def run(self, device: RuntimeDevice, inputs: Sequence[Any | None]) -> tuple[Any, ...] | None:
        """Return the output, as :meth:`Prepared.run` does."""
        made = device.empty_queued(self._layout)
        workspace = device.allocate_queued(self._workspace_bytes) if self._workspace_bytes else None
        device.bind_thread()
        done = self._launcher([*inputs, made], 0 if workspace is None else workspace.queued_address)
        if done is True:
            return (made,)
        if done is False:
            return None
        raise _make_error(self._name, done)


def _make_error(name: str, refusal: tuple[int, bytes]) -> LaunchError:
    return LaunchError(f"{name}: {refusal[1].decode('utf-8', 'replace')}", refusal[0])
