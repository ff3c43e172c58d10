"""The decision core, ``decide.c``, compiled and called: which kernel serves a call, and what is known about its time.

``docs/frozen.md`` is the description, the C source the one reading of it: the deployed library compiles the same file.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from contract import decision_structs as c
from contract.calls import Interface, Query, Value
from contract.decision_tables import DecisionTable, assemble, make_table
from contract.frozen_set import FrozenOp
from device.native import build_library

SOURCE, HEADER = (Path(__file__).with_name(name) for name in ("decide.c", "decide.h"))


class How(StrEnum):
    """Which step of the decision found the kernel; in the order of the header's numbers, which begin at 1.

    ``LIBRARY`` comes after the core's decision, and is none of its steps.
    """

    MEASURED = "measured"
    SURVEYED = "surveyed"
    NEAR = "near"
    PRIOR = "prior"
    FALLBACK = "fallback"
    LIBRARY = "library"


_STEPS = tuple(How)


class Decided(NamedTuple):
    """What the core decided for: a kernel by number, the step that found it, and its time in microseconds where one is known.

    ``point`` is the number of the measured problem that decided, -1 where none did, ``distance`` how far it is, squared, in doublings.
    ``in_bucket`` says whether only the call's own bucket was looked at.
    """

    kernel: int
    how: How
    us: float | None
    point: int
    distance: float
    in_bucket: bool


class Asked:
    """A call with all that its decision looks at: the kernels that serve it, its classes and its least work."""

    __slots__ = ("address", "struct")

    def __init__(self) -> None:
        self.struct = c.AicfQuery()
        self.address = ctypes.addressof(self.struct)

    @property
    def legal(self) -> int:
        """The kernels whose domain holds, a bit each."""
        return int.from_bytes(self.struct.legal, "little")

    @property
    def has_cost(self) -> bool:
        """Whether the op has a cost for the call."""
        return int(self.struct.unit) >= 0

    @property
    def flops(self) -> float:
        """The least arithmetic."""
        return float(self.struct.flops)

    @property
    def num_bytes(self) -> float:
        """The least traffic of memory."""
        return float(self.struct.bytes)


class DecisionCore:
    """The compiled decision on one table. The same questions have the same answers, from any thread."""

    def __init__(self, table: DecisionTable) -> None:
        self.table = table
        self._assembled, self._arrays = assemble(table)
        self._address = ctypes.addressof(self._assembled)
        self._library = load_core()
        names = table.names
        self.interface = Interface(names.op, names.interface)
        self._tensors, self._aligned = names.tensors, [0] * len(names.tensors)
        self._choices: dict[tuple[Value, ...], list[int]] = {}
        self._has_strides = any("strides" in t for t in names.interface["tensors"])
        self._pack = struct.Struct(
            f"{len(names.sizes)}q{8 * (c.MAX_SIZES - len(names.sizes))}x"
            f"{len(names.attributes)}q{8 * (c.MAX_ATTRIBUTES - len(names.attributes))}x"
            f"{len(names.tensors)}q{8 * (c.MAX_TENSORS - len(names.tensors))}x"
            f"{len(names.tensors)}q{8 * (c.MAX_TENSORS - len(names.tensors))}x"
            f"{len(names.tensors)}Q{8 * (c.MAX_TENSORS - len(names.tensors))}x"
        ).pack

    def ask(self, query: Query) -> Asked:
        """Return a call's legal kernels, classes and work."""
        choices = self._choices.get(query.values)
        if choices is None:
            choices = self._choices[query.values] = self.table.names.list_choices(query.attributes)
        strides = [query.strides.get(name, 0) for name in self._tensors]
        longest: Any = strides
        if self._has_strides:
            outer = [(s,) if isinstance(s, int) else s[:-1] for s in strides]
            strides, longest = [math.gcd(*s) for s in outer], [max(s, default=0) for s in outer]
        addresses = [query.addresses.get(name, 0) for name in self._tensors] if query.addresses else self._aligned
        asked = Asked()
        self._library.aicf_ask(self._address, self._pack(*query.sizes, *choices, *strides, *longest, *addresses), asked.address)
        return asked

    def decide(self, asked: Asked, kernels: int) -> Decided | None:
        """Return the decision among legal kernels (a bit each); None where there is none."""
        found = c.AicfDecision()
        self._library.aicf_decide(self._address, asked.address, _pack_mask(kernels), ctypes.addressof(found))
        if found.kernel < 0:
            return None
        us = found.us if found.us >= 0.0 else None
        return Decided(found.kernel, _STEPS[found.how - 1], us, found.point, found.distance, found.in_bucket != 0)

    def keep_preferred(self, kernels: int, *, deterministic: bool, accumulate: str | None) -> int:
        """Return those of the kernels (a bit each) that give the same bits on every run, and make sums in a dtype, if that is wished."""
        known = self.table.dtypes
        dtype = 0 if accumulate is None else 1 + known.index(accumulate) if accumulate in known else -1
        return self._keep(kernels, c.AicfWishes(deterministic, dtype, False, -1), None)

    def keep_small(self, kernels: int, workspace_bytes: Mapping[int, int], *, max_bytes: int | None, least: bool) -> int:
        """Return those of the kernels that want at most so much workspace, or the least; ``workspace_bytes`` is by number."""
        wanted = (c.INT64 * len(self.table.kernels))()
        for kernel, num_bytes in workspace_bytes.items():
            wanted[kernel] = num_bytes
        return self._keep(kernels, c.AicfWishes(False, 0, least, -1 if max_bytes is None else max_bytes), wanted)

    def _keep(self, kernels: int, wishes: c.AicfWishes, workspace_bytes: Any) -> int:
        kept = self.table.fill_mask(kernels)
        self._library.aicf_keep_preferred(self._address, ctypes.byref(wishes), workspace_bytes, kept)
        return int.from_bytes(kept, "little")

    def find_classes(self, asked: Asked) -> dict[str, str | None]:
        """Return the call's class by axis, None where it is in none."""
        names, found = self.table.names, asked.struct.classes
        return {
            axis: classes[n]["name"] if n >= 0 else None
            for axis, classes, n in zip(names.axes.names, names.classes, found[: len(names.classes)], strict=True)
        }

    def find_bucket_winners(self, asked: Asked) -> int:
        """Return the winners of the call's bucket, a bit each."""
        own = asked.struct.classes[:]
        num_axes = len(self.table.names.classes)
        return sum(1 << w.kernel for w in self.table.lists["winners"] if w.classes[:num_axes] == own[:num_axes])

    def find_broken(self, asked: Asked, kernel: int) -> Mapping[str, Any] | None:
        """Return the first condition of a kernel's domain that does not hold, None where all do."""
        number = self._library.aicf_find_broken(self._address, asked.address, kernel)
        return None if number < 0 else self.table.conditions[number]

    def find_nearest(self, asked: Asked, kernels: int, *, in_bucket: bool) -> int | None:
        """Return the number of the nearest measured problem that one of the kernels was timed on, None where none is near enough."""
        distance = c.DOUBLE()
        found = int(self._library.aicf_find_nearest(self._address, asked.address, _pack_mask(kernels), in_bucket, ctypes.byref(distance)))
        return None if found < 0 else found

    def list_times(self, point: int) -> dict[int, float]:
        """Return the medians at a measured problem, in microseconds by kernel: of two of one kernel the lesser."""
        row = self.table.lists["points"][point]
        times: dict[int, float] = {}
        for time in self.table.lists["times"][row.first : row.first + row.count]:
            times.setdefault(time.kernel, time.us)
        return times

    def list_exact_times(self, asked: Asked) -> dict[int, float]:
        """Return the medians at the call's own sizes and attributes, in microseconds by kernel."""
        call, names = asked.struct.call, self.table.names
        sizes, choices = call.sizes[: len(names.sizes)], call.attributes[: len(names.attributes)]
        times: dict[int, float] = {}
        for number, point in enumerate(self.table.lists["points"]):
            if point.sizes[: len(sizes)] == sizes and point.attributes[: len(choices)] == choices:
                times |= {k: min(us, times.get(k, us)) for k, us in self.list_times(number).items()}
        return times

    def predict_us(self, asked: Asked, kernels: int) -> dict[int, float] | None:
        """Return the microseconds that the survey predicts, by kernel that it knows; None where it is not asked for these kernels."""
        found = (c.DOUBLE * len(self.table.kernels))()
        if not self._library.aicf_predict(self._address, asked.address, _pack_mask(kernels), found):
            return None
        return {i: us for i, us in enumerate(found) if not math.isnan(us)}

    def find_terms(self, asked: Asked, kernel: int) -> list[float]:
        """Return the terms of a kernel's time by its own model.

        They are a launch (1 us), waves, and microseconds of arithmetic in whole waves, of memory, of tiles' reads, of those off the lines
        of memory, and of arithmetic dealt out evenly.
        """
        return list(self.find_terms_of_all([asked], kernel, self.table.lists["models"][kernel : kernel + 1])[0][0])

    def find_terms_of_all(self, asked: Sequence[Asked], kernel: int, models: Sequence[c.AicfModel]) -> ctypes.Array[Any]:
        """Return the terms of a kernel's time by call and model."""
        given = (c.AicfModel * len(models))(*models)
        row = c.DOUBLE * c.NUM_TERMS * len(models)
        found = (row * len(asked))()
        address, size = ctypes.addressof(found), ctypes.sizeof(row)
        for i, each in enumerate(asked):
            self._library.aicf_find_terms(self._address, each.address, kernel, given, len(models), address + i * size)
        return found

    def estimate_us(self, asked: Asked, kernel: int) -> float:
        """Return a kernel's least time by the chip's peak rates, stretched by how its blocks fill the chip; 0 without a cost."""
        return float(self._library.aicf_estimate_us(self._address, asked.address, kernel))


@lru_cache(maxsize=256)
def find_arch(archs: tuple[str, ...], major: int, minor: int) -> str:
    """Return the architecture of the best machine code that a device of this compute capability runs, "" where none runs there."""
    names = (ctypes.c_char_p * len(archs))(*(arch.encode() for arch in archs))
    found = int(load_core().aicf_find_arch(names, len(archs), major, minor))
    return archs[found] if found >= 0 else ""


def open_core(frozen: FrozenOp, arch: str) -> DecisionCore:
    """Return the decision among an op's frozen kernels for an architecture; raises :class:`~contract.errors.FrozenError`."""
    manifests = {name: kernel.manifest for name, kernel in frozen.kernels.items()}
    return DecisionCore(make_table(arch, frozen.description, frozen.entries, frozen.medians, frozen.surveys.get(arch), manifests))


def _pack_mask(kernels: int) -> bytes:
    return kernels.to_bytes(8 * c.MASK_WORDS, "little")


def build_core(cache_dir: Path | None = None) -> Path:
    """Return the compiled core; raises what :func:`device.native.build_library` raises."""
    sizes = (f"-DAICF_TABLE_BYTES={ctypes.sizeof(c.AicfTable)}", f"-DAICF_QUERY_BYTES={ctypes.sizeof(c.AicfQuery)}")
    return build_library("decide.so", SOURCE, ("-x", "c", "-std=c11", *sizes), [HEADER], cache_dir)


@cache
def load_core() -> ctypes.CDLL:
    """Return the compiled core, loaded once per process; raises what :func:`build_core` raises."""
    library = ctypes.CDLL(str(build_core()))
    pointer, number = ctypes.c_void_p, ctypes.c_int32
    for name, arguments, result in (
        ("find_arch", [pointer, number, number, number], number),
        ("ask", [pointer, ctypes.c_char_p, pointer], None),
        ("decide", [pointer, pointer, ctypes.c_char_p, pointer], None),
        ("keep_preferred", [pointer, pointer, pointer, pointer], None),
        ("find_broken", [pointer, pointer, number], number),
        ("find_nearest", [pointer, pointer, ctypes.c_char_p, number, pointer], number),
        ("predict", [pointer, pointer, ctypes.c_char_p, pointer], number),
        ("find_terms", [pointer, pointer, number, pointer, number, pointer], None),
        ("estimate_us", [pointer, pointer, number], ctypes.c_double),
    ):
        function = getattr(library, f"aicf_{name}")
        function.argtypes, function.restype = arguments, result
    return library
