"""Times of all frozen kernels that serve a problem, including the chosen one, taken together, cold."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contract.building import build_kernel
from contract.calls import Query, TensorLayout
from contract.decision import DecisionCore, find_arch, open_core
from contract.entry_points import EntryPoints
from contract.frozen_set import FrozenOp
from contract.structs import Status, make_params
from device import Device
from device.interface import Buffer, DeviceError, Stream
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
# Kernels that are this much slower than the best in the first rounds are not the best: they are not timed further.
_HOPELESS = 1.5


class RandomPool:
    """Normal numbers on the host, made once: filling a problem's tensors with them costs no more than copying.

    Integers are drawn as the op declares them: what indexes a table must lie in it.
    """

    def __init__(self, op: Op) -> None:
        self._op = op
        self._values = np.random.default_rng(1).standard_normal(_POOL_ELEMS, dtype=np.float32)
        self._by_dtype: dict[str, NDArray[np.uint8]] = {}

    def fill(self, buffer: Buffer, layout: TensorLayout, query: Query) -> None:
        """Fill the buffer of a problem's tensor: with numbers of its dtype, the same ones again and again, or with integers."""
        dtype = layout.dtype
        if find_dtype(dtype).kind in "iu":
            tensor = next(t for t in self._op.tensors if t.name == layout.name)
            problem = Problem(query.by_size, query.attributes)
            buffer.write(draw_tensor(self._op, problem, tensor, tuple(layout.list_lengths(query.by_size)), "uniform"))
            return
        if dtype not in self._by_dtype:
            self._by_dtype[dtype] = self._values.astype(find_dtype(dtype)).view(np.uint8)
        pool = self._by_dtype[dtype]
        for offset in range(0, buffer.size_bytes, len(pool)):
            buffer.write(pool[: buffer.size_bytes - offset], offset)


@contextmanager
def place_operands(device: Device, core: DecisionCore, query: Query, pool: RandomPool, seed: int) -> Iterator[list[dict[str, int]]]:
    """Yield the addresses of a problem's tensors on the device, inputs random, at several places where the problem is small."""
    layouts = core.interface.find_layouts(query.values)
    num_bytes = {t.name: math.prod(t.list_lengths(query.by_size)) * find_dtype(t.dtype).itemsize for t in layouts}
    generator = random.Random(seed)
    held: list[Buffer] = []
    places: list[dict[str, int]] = []
    try:
        for _ in range(_NUM_PLACES if sum(num_bytes.values()) <= _SHORT_BYTES else 1):
            addresses = {}
            for layout in layouts:
                held.append(device.allocate(num_bytes[layout.name]))
                if layout.role == "input":
                    pool.fill(held[-1], layout, query)
                addresses[layout.name] = held[-1].address
                held.append(device.allocate(generator.randrange(1, _MAX_SPACE_BYTES)))
            places.append(addresses)
        yield places
    finally:
        for buffer in held:
            buffer.free()


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

    Raises :class:`FrozenUseError` where there are none for the device.
    """

    def __init__(self, device: Device, frozen: FrozenOp) -> None:
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

    def time(self, timer: Timer, query: Query, pool: RandomPool, seed: int) -> dict[str, Any]:
        """Return a problem with the chosen kernel, the times in microseconds of all that serve it, and the regret."""
        asked = self.core.ask(query)
        legal = [name for i, name in enumerate(self.core.table.kernels) if asked.legal >> i & 1]
        decided = self.core.decide(asked, asked.legal)
        if decided is None:
            raise FrozenUseError(f"{self.op}: no frozen kernel serves {dict(query.by_size)}")
        chosen = self.core.table.kernels[decided.kernel]
        with place_operands(self.device, self.core, query, pool, seed) as places:
            row = self.core.interface.row
            params = [make_params(row, query.by_size, query.attributes, place, query.strides) for place in places]
            launches = [Launches(self.device, name, self.calls[name], params) for name in legal]
            times = _time_together(timer, dict(zip(legal, launches, strict=True)), chosen)
            for each in launches:
                each.workspace.free()
        return {
            "sizes": dict(query.by_size),
            "attributes": dict(query.attributes),
            "how": str(decided.how),
            "chosen": chosen,
            "best": min(times, key=lambda k: times[k]),
            "regret": find_regret(times, chosen),
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
    pool = RandomPool(op)
    started = time.monotonic()
    rows: list[dict[str, Any]] = []
    for number, query in enumerate(queries):
        if time.monotonic() - started > budget_s:
            break
        rows.append(kernels.time(timer, query, pool, number))
    return rows
