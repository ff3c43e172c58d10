"""A call of a frozen kernel: its tensors by name, its parameters, its launch."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aicf.registry import How, KernelHandle
from contract.structs import make_params

WORD_BYTES = 4
# What a launch takes that moves next to nothing, in a graph, on an H200.
LAUNCH_US = 1.5


@dataclass(frozen=True)
class FrozenCall:
    """A kernel for one call: tensors by their names in the op's interface, inputs as the opset orders them.

    An input or output has one name, or as many as it has words of 32 bits where it is a counter. ``places`` say where in it, in bytes,
    those tensors begin that are parts of it.
    """

    handle: KernelHandle
    inputs: tuple[tuple[str, ...], ...]
    outputs: tuple[tuple[str, ...], ...]
    scalars: Mapping[str, float]
    places: Mapping[str, int] = field(default_factory=dict)

    @property
    def seal(self) -> str:
        """What names the kernel."""
        return self.handle.seal

    @property
    def predicted_us(self) -> float | None:
        """The time of a launch. Estimates of bytes and flops know no launch: for tiny problems they would say that it takes no time."""
        us = self.handle.predicted_us
        return us + LAUNCH_US if us is not None and self.handle.how is How.PRIOR else us

    def make_params(self, inputs: Sequence[int | None], outputs: Sequence[int]) -> ctypes.Structure:
        """Return the C struct for device addresses; raises ValueError naming one that the kernel cannot take.

        A tensor that the kernel changes in place is where the output is: whoever calls has copied the input there.
        """
        addresses = _spread(self.inputs, inputs, self.places) | _spread(self.outputs, outputs, self.places)
        for name in self._list_misplaced(addresses):
            step = self.handle.alignment_bytes[name]
            raise ValueError(f"{self.handle.op}: {self.handle.kernel} needs {name} aligned to {step} bytes, got {addresses[name]:#x}")
        query = self.handle.query
        return make_params(self.handle.interface.row, query.by_size, query.attributes, addresses, query.strides, self.scalars)

    def find_misplaced(self, inputs: Sequence[int | None]) -> frozenset[int]:
        """Return which inputs lie at addresses that the kernel cannot take: the choice of it took them as aligned."""
        misplaced = self._list_misplaced(_spread(self.inputs, inputs, self.places))
        return frozenset(i for i, names in enumerate(self.inputs) if any(name in misplaced for name in names))

    def _list_misplaced(self, addresses: Mapping[str, int]) -> list[str]:
        return [name for name, at in addresses.items() if at % self.handle.alignment_bytes.get(name, 1)]

    def launch(self, params: ctypes.Structure, workspace: int, stream: int) -> None:
        """Queue the kernel; raises :class:`~aicf.errors.LaunchError` with the reason where it refuses."""
        self.handle.load().launch(params, workspace, stream)


def _spread(names: Sequence[tuple[str, ...]], addresses: Sequence[int | None], places: Mapping[str, int]) -> dict[str, int]:
    pairs = [(each, at) for each, at in zip(names, addresses, strict=True) if at is not None]
    return {name: at + places.get(name, WORD_BYTES * i) for each, at in pairs for i, name in enumerate(each)}


def say_lost(op: str, seal: str) -> str:
    """Return a message for a plan that names a kernel which is not there."""
    what = "which the frozen set does not have, or a library that cannot be used here"
    return f"{op}: the plan names the kernel with seal {seal[:16]}, {what}; compile it again"
