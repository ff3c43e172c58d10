"""The inputs of the time model for one variant on one problem: its launches, occupancy limits, counts, and SASS.

Counts come from the emulated device, of a sample of blocks spread evenly over the grid of the *full* problem: each block does all of its
own work, edges are sampled in proportion, and totals are the sample's times (blocks of the grid / blocks run). Distinct bytes of the launch
do not scale so; the model takes them from the op's cost.

Instruction counts are of PTX. The machine code that ptxas makes of it has fewer or more, so each SASS instruction is given the execution
count of the PTX of its source line: in a loop the largest of that line, outside the smallest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from device.interface import Device, KernelNode, Stream
from device.observer import KernelLines, Observer
from harness.build.builder import BuildResult, read_resources
from harness.build.resources import Occupancy, Resources, find_occupancy
from harness.build.sass import SassInstruction, SassKernel, Stall
from harness.spec import Launchable, Op, Problem
from harness.targets import Target
from harness.verify.allocations import Layout
from harness.verify.case import Case
from harness.verify.input_domains import find_limit
from harness.verify.inputs import draw

# Threads of the blocks that are run; at least and at most so many blocks.
_SAMPLE_THREADS = 2048
_MIN_BLOCKS, _MAX_BLOCKS = 2, 64
# Warp instructions between the turns of a block's warps, as near to the hardware's interleaving as the emulator goes cheaply.
_WARP_QUANTUM = 32
_L1_RESERVED_BYTES = 1024  # that the system takes of shared memory for each block
_PATTERN_ELEMS = 1 << 16
# What PTX and machine code have in common, one for one.
_COMMON_CLASSES = frozenset({"fp32", "fp64", "special", "global", "shared"})
_COMMON_COUNTERS = (
    "fp32",
    "fp64",
    "special",
    "global_loads",
    "global_stores",
    "global_atomics",
    "shared_loads",
    "shared_stores",
    "shared_atomics",
)


@dataclass(frozen=True)
class LaunchFeatures:
    """One kernel launch. ``counts`` are of the ``num_sampled`` blocks that were run, ``sass`` of the same, by class of instruction.

    ``static`` holds figures of the machine code: instructions, bytes of stack and of spills.
    """

    kernel: str
    num_blocks: int
    num_threads: int
    shared_bytes: int
    registers: int
    blocks_per_sm: int
    num_sampled: int
    counts: Mapping[str, int]
    sass: Mapping[str, float] = field(default_factory=dict)
    static: Mapping[str, float] = field(default_factory=dict)

    @property
    def warps_per_block(self) -> int:
        """Warps of a block."""
        return -(-self.num_threads // 32)

    def per_block(self, name: str) -> float:
        """Return a count of an average block."""
        return self.counts.get(name, 0) / max(self.num_sampled, 1)

    def sass_per_block(self, name: str) -> float:
        """Return an estimated count of SASS instructions of a class, of an average block."""
        return self.sass.get(name, 0.0) / max(self.num_sampled, 1)


@dataclass(frozen=True)
class Features:
    """All launches of one variant on one problem, with the compulsory bytes and the flops of the op's cost."""

    op: str
    variant: str
    problem: str
    flops: float
    bytes_read: float
    bytes_written: float
    launches: tuple[LaunchFeatures, ...]

    @property
    def kernel(self) -> str:
        """The kernel of the variant."""
        return self.variant.split("/", 1)[0]


def read_features(values: Mapping[str, Any]) -> Features:
    """Return features from the plain values that ``dataclasses.asdict`` made of them."""
    return Features(**{**values, "launches": tuple(LaunchFeatures(**launch) for launch in values["launches"])})


def choose_sample(num_blocks: int, num_threads: int) -> int:
    """Return how many blocks to run, fewer where blocks are large."""
    wanted = min(max(_SAMPLE_THREADS // max(num_threads, 1), _MIN_BLOCKS), _MAX_BLOCKS)
    return min(num_blocks, wanted)


def find_l1_share(occupancy: Occupancy, shared_bytes: int, target: Target) -> int:
    """Return a block's share of the L1: what shared memory leaves of the SM's one array, over the resident blocks."""
    blocks = max(occupancy.blocks_per_sm, 1)
    left = target.l1_bytes - blocks * (shared_bytes + _L1_RESERVED_BYTES)
    return max(left, target.l1_bytes // 16) // blocks


def collect_features(
    device: Device,
    op: Op,
    problem: Problem,
    entries: Iterable[tuple[BuildResult, Launchable, Mapping[str, SassKernel]]],
    target: Target,
) -> Iterator[tuple[BuildResult, Features | str]]:
    """Yield the features of each build on a problem, or the reason why it does not serve it. The device must be the emulated one."""
    observer = device.observer
    if observer is None:
        raise ValueError("features are collected on the emulated device")
    stream = device.create_stream()
    with Case(device, op, problem, Layout.EXACT) as case:
        case.upload(make_pattern(op, problem))
        for build, launchable, sass in entries:
            reason = launchable.supports(**case.arguments)
            yield build, reason or _collect(case, observer, stream, build, launchable, sass, target)


def _collect(
    case: Case,
    observer: Observer,
    stream: Stream,
    build: BuildResult,
    launchable: Launchable,
    sass: Mapping[str, SassKernel],
    target: Target,
) -> Features:
    """Return the features of one build: its launches are captured to know them, then sampled."""
    case.prepare(launchable)
    with case.device.capture(stream) as graphs:
        case.launch(launchable, stream)
    nodes = graphs[0].kernel_nodes
    known, largest = read_resources(build), build.resources or Resources(32)
    used = [known.get(n.name, largest) for n in nodes]
    plans = [plan_launch(n, r, target) for n, r in zip(nodes, used, strict=True)]
    try:
        # One setting serves all launches of a variant: that of the one with the most threads.
        node, occupancy, resources = max(zip(nodes, plans, used, strict=True), key=lambda p: math.prod(p[0].grid) * math.prod(p[0].block))
        shared = resources.shared_bytes + node.dynamic_shared_bytes
        observer.set_option("sample_blocks", str(choose_sample(math.prod(node.grid), math.prod(node.block))))
        observer.set_option("l1_bytes", str(find_l1_share(occupancy, shared, target)))
        observer.set_option("warp_quantum", str(_WARP_QUANTUM))
        with observer.observe((), counters=True):
            observer.take_counters()
            observer.lines()
            case.launch(launchable, stream)
            stream.synchronize()
            counted, lines = observer.take_counters(), {k.kernel: k for k in observer.lines()}
    finally:
        for name in ("sample_blocks", "l1_bytes", "warp_quantum"):
            observer.set_option(name, "0")
    launches = [
        make_launch(n, o, r, c.counts, c.kernel, sass.get(c.kernel), lines.get(c.kernel))
        for n, o, r, c in zip(nodes, plans, used, counted, strict=True)
    ]
    cost = case.op.cost(case.problem)
    return Features(case.op.name, build.variant.name, case.problem.name, cost.flops, cost.bytes_read, cost.bytes_written, tuple(launches))


def plan_launch(node: KernelNode, resources: Resources, target: Target) -> Occupancy:
    """Return the occupancy of one launch."""
    return find_occupancy(resources, math.prod(node.block), node.dynamic_shared_bytes, target)


def make_launch(
    node: KernelNode,
    occupancy: Occupancy,
    resources: Resources,
    counts: Mapping[str, int],
    kernel: str,
    sass: SassKernel | None,
    lines: KernelLines | None,
) -> LaunchFeatures:
    """Put the parts of one launch together."""
    static: dict[str, float] = {"spill_bytes": float(resources.spill_bytes), "stack_bytes": float(resources.stack_bytes)}
    if sass is not None:
        static["instructions"] = float(len(sass.instructions))
    return LaunchFeatures(
        kernel=kernel,
        num_blocks=math.prod(node.grid),
        num_threads=math.prod(node.block),
        shared_bytes=resources.shared_bytes + node.dynamic_shared_bytes,
        registers=resources.registers,
        blocks_per_sm=occupancy.blocks_per_sm,
        num_sampled=counts.get("blocks", 0),
        counts={k: v for k, v in counts.items() if v},
        sass=estimate_executed(sass, lines) if sass is not None and lines is not None else {},
        static=static,
    )


def estimate_executed(sass: SassKernel, lines: KernelLines) -> dict[str, float]:
    """Return figures of the executed machine code, from the execution counts of the PTX lines of the same source lines.

    Warp instructions by class of :mod:`harness.build.sass`; ``chain_clocks`` and ``global_waits``, what a warp waits for by
    :func:`harness.build.sass.find_stalls`, summed over the warps; ``local_sectors``, 32-byte sectors of spilled registers.
    """
    counts: dict[str, list[int]] = {}
    for line in lines.lines:
        counts.setdefault(line.source, []).append(line.counts.get("warp_instructions", 0))
    code = [
        (inst, stall, max(found) if sass.find_depth(inst.address) else min(found))
        for inst, stall in zip(sass.instructions, sass.stalls, strict=True)
        if (found := counts.get(inst.source)) is not None and inst.base != "NOP"
    ]
    copies = find_copies(code, lines)
    executed: dict[str, float] = {}

    def add(name: str, value: float) -> None:
        if value:
            executed[name] = executed.get(name, 0.0) + value

    for inst, stall, times in code:
        weight = times / copies[inst.source]
        add(inst.kind, weight)
        add("chain_clocks", weight * stall.clocks)
        add("global_waits", weight * stall.waits_for_global)
        if inst.kind == "local":
            add("local_sectors", weight * inst.width_bits / 8.0)
    return executed


def find_copies(code: Sequence[tuple[SassInstruction, Stall, int]], lines: KernelLines) -> dict[str, float]:
    """Return by source line how many times over its instructions would be counted: ptxas unrolls loops, and each copy is there once.

    Read off the instructions that PTX and machine code have in common, one for one: memory accesses, arithmetic on floats, and special
    functions. A line that has none of these takes the mean of those that have.
    """
    there: dict[str, float] = {}
    for inst, _, times in code:
        if inst.kind in _COMMON_CLASSES:
            there[inst.source] = there.get(inst.source, 0.0) + times
    wanted = {source: sum(counts.get(name, 0) for name in _COMMON_COUNTERS) for source, counts in lines.by_source().items()}
    both = [source for source in there if wanted.get(source, 0)]
    mean = max(1.0, sum(there[s] for s in both) / sum(wanted[s] for s in both)) if both else 1.0
    return {inst.source: max(1.0, there[inst.source] / wanted[inst.source]) if inst.source in both else mean for inst, _, _ in code}


def make_pattern(op: Op, problem: Problem) -> dict[str, NDArray[Any]]:
    """Return inputs of a repeated random pattern: counts hardly depend on values, and a large problem's inputs are quick to make."""
    inputs: dict[str, NDArray[Any]] = {}
    for tensor in op.inputs:
        if tensor.present(problem):
            pattern = draw(
                (_PATTERN_ELEMS,),
                tensor.resolve_dtype(problem),
                "uniform",
                op=op.name,
                problem="pattern",
                tensor=tensor.name,
                values=tensor.resolve_values(problem),
                limit=find_limit(tensor, problem),
            )
            inputs[tensor.name] = np.resize(pattern, tensor.resolve_shape(problem))
    return inputs
