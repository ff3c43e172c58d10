"""Times of all frozen kernels that serve a problem, including the chosen one, and of candidates beside them, taken together, cold."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from contract.building import build_kernel
from contract.calls import Query, TensorLayout
from contract.decision import DecisionCore, find_arch, open_core
from contract.entry_points import EntryPoints
from contract.frozen_set import FrozenOp
from contract.structs import Status, make_params
from device.interface import Buffer, Device, DeviceError, Stream
from device.runtime import RuntimeDevice
from harness.errors import FrozenUseError
from harness.spec import Op, Problem
from harness.spec.dtypes import find_dtype
from harness.surveys.regret import find_regret
from harness.timing.timer import Mode, Timer, TimingPolicy
from harness.verify.inputs import draw_tensor

# Problems are many: each may be a little less certain than one of a bench.
POLICY = TimingPolicy(warmup_min_s=0.02, warmup_window_s=0.01, warmup_cap_s=0.3)
# A short launch depends on where its data lies, by up to a tenth: it is timed at several places in turn.
_NUM_PLACES = 8
_SHORT_BYTES = 32 << 20
_MAX_SPACE_BYTES = 4 << 20
_POOL_ELEMS = 1 << 24
_ALIGNMENT_BYTES = 256
# Kernels that are this much slower than the best in the first rounds are not the best: they are not timed further.
_HOPELESS = 1.5


class Operands:
    """Places for the tensors of one problem after another, in device memory that is allocated once and filled on the device.

    Inputs are normal numbers, the same ones again and again; integers are drawn as the op declares them: what indexes a table must lie in
    it. Free it, or use it as a context manager.
    """

    def __init__(self, op: Op, device: RuntimeDevice) -> None:
        self._op, self._device = op, device
        self._memory = device.allocate(_ALIGNMENT_BYTES)
        self._pools: dict[str, Buffer] = {}

    def __enter__(self) -> Operands:
        return self

    def __exit__(self, *_: object) -> None:
        for buffer in (self._memory, *self._pools.values()):
            buffer.free()

    def place(self, core: DecisionCore, query: Query, seed: int) -> list[dict[str, int]]:
        """Return the addresses of a problem's tensors, filled, at several places where the problem is small; those before are gone."""
        layouts = core.interface.find_layouts(query.values)
        num_bytes = {t.name: _count_bytes(t, query) for t in layouts}
        generator = random.Random(seed)
        offsets: list[dict[str, int]] = []
        end = 0
        for _ in range(_NUM_PLACES if sum(num_bytes.values()) <= _SHORT_BYTES else 1):
            offsets.append({})
            for name, size in num_bytes.items():
                offsets[-1][name] = end
                end += -(-(size + generator.randrange(1, _MAX_SPACE_BYTES)) // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        if end > self._memory.size_bytes:
            self._memory.free()
            self._memory = self._device.allocate(end)
        for place in offsets:
            for layout in (t for t in layouts if t.role == "input"):
                self._fill(layout, query, place[layout.name], num_bytes[layout.name])
        self._device.synchronize()
        return [{name: self._memory.address + offset for name, offset in place.items()} for place in offsets]

    def _fill(self, layout: TensorLayout, query: Query, offset: int, size: int) -> None:
        if find_dtype(layout.dtype).kind in "iu":
            tensor = next(t for t in self._op.tensors if t.name == layout.name)
            shape = tuple(layout.list_lengths(query.by_size))
            self._memory.write(draw_tensor(self._op, Problem(query.by_size, query.attributes), tensor, shape, "uniform"), offset)
            return
        if layout.dtype not in self._pools:
            values = np.random.default_rng(1).standard_normal(_POOL_ELEMS, dtype=np.float32).astype(find_dtype(layout.dtype)).view(np.uint8)
            self._pools[layout.dtype] = self._device.allocate(len(values))
            self._pools[layout.dtype].write(values)
        pool = self._pools[layout.dtype]
        for at in range(0, size, pool.size_bytes):
            self._device.copy(self._memory.address + offset + at, pool.address, min(pool.size_bytes, size - at))


def _count_bytes(layout: TensorLayout, query: Query) -> int:
    """Return the bytes from a tensor's first element to its last, with what lies between its rows."""
    lengths, strides = layout.list_lengths(query.by_size), query.strides.get(layout.name)
    if isinstance(strides, tuple):
        count = 1 + sum((length - 1) * stride for length, stride in zip(lengths, strides, strict=True))
    elif strides is not None:
        count = (math.prod(lengths[:-1]) - 1) * strides + lengths[-1]
    else:
        count = math.prod(lengths)
    return count * find_dtype(layout.dtype).itemsize


class Launches:
    """Launches of one kernel at the places of its operands in turn."""

    def __init__(self, device: Device, name: str, calls: EntryPoints, params: Sequence[Any]) -> None:
        self._name, self._calls, self._turns = name, calls, itertools.cycle(params)
        status, num_bytes = calls.ask_workspace(params[0])
        self._check(status)
        self.workspace = device.allocate(max(num_bytes, 1))

    def launch(self, stream: Stream) -> None:
        """Queue the kernel once; raises :class:`DeviceError` with its reason where it refuses."""
        self._check(self._calls.launch(next(self._turns), self.workspace.address, stream.handle))

    def _check(self, status: Status) -> None:
        if status.code:
            raise DeviceError(f"{self._name}: {status.read_reason()}")


class FrozenKernels:
    """All frozen kernels of an op that the device runs, built and loaded, with the decision among them.

    ``candidates`` are timed beside them on the problems that they serve, by name, and chosen nowhere. Raises :class:`FrozenUseError` where
    nothing is frozen for the device.
    """

    def __init__(self, device: RuntimeDevice, frozen: FrozenOp, candidates: Mapping[str, EntryPoints] | None = None) -> None:
        self.device, self.op = device, frozen.name
        major, minor = device.properties.compute_capability
        arch = find_arch(tuple(frozen.archs), major, minor)
        if not arch:
            raise FrozenUseError(f"{frozen.name}: nothing is frozen for compute capability {major}.{minor}")
        self.core = open_core(frozen, arch)
        kernels = [frozen.kernels[name] for name in self.core.table.kernels]
        with ThreadPoolExecutor() as pool:
            libraries = list(pool.map(build_kernel, kernels))
        pairs = zip(kernels, libraries, strict=True)
        self.calls: Mapping[str, EntryPoints] = {k.name: EntryPoints(k.manifest["entry_points"], path) for k, path in pairs}
        self.candidates = dict(candidates or {})

    def time(self, timer: Timer, query: Query, operands: Operands, seed: int) -> dict[str, Any]:
        """Return a problem with the chosen kernel, the times in microseconds of all that serve it, and the regret among frozen ones."""
        asked = self.core.ask(query)
        legal = [name for i, name in enumerate(self.core.table.kernels) if asked.legal >> i & 1]
        decided = self.core.decide(asked, asked.legal)
        if decided is None:
            raise FrozenUseError(f"{self.op}: no frozen kernel serves {dict(query.by_size)}")
        chosen = self.core.table.kernels[decided.kernel]
        interface = self.core.interface
        places = operands.place(self.core, query, seed)
        params = [make_params(interface.row, query.by_size, query.attributes, place, query.strides) for place in places]
        calls = {name: self.calls[name] for name in legal}
        calls |= {name: entry for name, entry in self.candidates.items() if not entry.supports(params[0]).code}
        launches = {name: Launches(self.device, name, entry, params) for name, entry in calls.items()}
        times = _time_together(timer, launches, chosen)
        for each in launches.values():
            each.workspace.free()
        frozen_times = {name: times[name] for name in legal}
        packed = {t.name: t.find_packed(query.by_size) for t in interface.find_layouts(query.values)}
        return {
            "sizes": dict(query.by_size),
            "attributes": dict(query.attributes),
            "strides": {name: stride for name, stride in query.strides.items() if stride != packed[name]},
            "how": str(decided.how),
            "chosen": chosen,
            "best": min(frozen_times, key=lambda k: frozen_times[k]),
            "regret": find_regret(frozen_times, chosen),
            "times_us": {name: round(us, 4) for name, us in times.items()},
        }


def _time_together(timer: Timer, launches: Mapping[str, Launches], chosen: str) -> dict[str, float]:
    """Return medians in microseconds; kernels that are far behind in the first rounds are not timed further."""
    names = list(launches)
    subjects = [timer.prepare(each.launch, Mode.COLD) for each in launches.values()]
    first = np.median(timer.run_rounds(subjects, 2).times_us, axis=(0, 2))
    times = {name: float(us) for name, us in zip(names, first, strict=True)}
    hopeful = [i for i, name in enumerate(names) if first[i] <= _HOPELESS * first.min() or name == chosen]
    if len(hopeful) > 1:
        timer.warm_up([subjects[i] for i in hopeful])
        done = np.median(timer.run_rounds([subjects[i] for i in hopeful], 2 * _NUM_PLACES).times_us, axis=(0, 2))
        times |= {names[i]: float(us) for i, us in zip(hopeful, done, strict=True)}
    return times


def time_problems(op: Op, kernels: FrozenKernels, timer: Timer, queries: Sequence[Query], budget_s: float) -> list[dict[str, Any]]:
    """Return the rows of an op's problems; none is begun after ``budget_s`` seconds."""
    started = time.monotonic()
    rows: list[dict[str, Any]] = []
    with Operands(op, kernels.device) as operands:
        for number, query in enumerate(queries):
            if time.monotonic() - started > budget_s:
                break
            rows.append(kernels.time(timer, query, operands, number))
    return rows
