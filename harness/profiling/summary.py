"""What a profile means: what bounds the launch, where and why its warps wait, and what to try. Pure: metrics in, sentences out.

Thresholds follow Nsight Compute's *Speed of Light* section (Nsight Compute Documentation 2025.3, Kernel Profiling Guide): a unit at 80 %
of its peak or more binds; where none reaches 60 %, latency does. A metric that was not measured is named, and nothing is concluded from it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness.profiling.ncu_pages import KernelMetrics, LineStalls
from harness.terminal.figures import format_count

BINDS, BUSY = 80.0, 60.0
_PEAK = ".avg.pct_of_peak_sustained_elapsed"
TIME = "gpu__time_duration.sum"
# Units by their share of peak throughput; the last is the multiprocessor's own: its busiest pipe.
UNITS: Mapping[str, str] = {
    "DRAM": f"gpu__dram_throughput{_PEAK}",
    "L2": f"lts__throughput{_PEAK}",
    "L1 and shared memory": f"l1tex__throughput{_PEAK}",
    "SM": f"sm__throughput{_PEAK}",
}
PIPES: Mapping[str, str] = {
    "tensor cores": f"sm__pipe_tensor_cycles_active{_PEAK}",
    "FMA pipe": f"sm__pipe_fma_cycles_active{_PEAK}",
    "ALU pipe": f"sm__pipe_alu_cycles_active{_PEAK}",
    "FP64 pipe": f"sm__pipe_fp64_cycles_active{_PEAK}",
    "special function pipe": f"sm__inst_executed_pipe_xu{_PEAK}",
    "load/store pipe": f"sm__inst_executed_pipe_lsu{_PEAK}",
    "instruction issue": f"sm__inst_issued{_PEAK}",
}
_STALL_PREFIX, _STALL_SUFFIX = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"
# Reasons by ncu's names in metrics; those of the source page differ in part. Not stalls: a warp that issues.
_NO_STALLS = frozenset({"selected"})
SOURCE_REASONS: Mapping[str, str] = {
    "long_sb": "long_scoreboard",
    "short_sb": "short_scoreboard",
    "math": "math_pipe_throttle",
    "mio": "mio_throttle",
    "lg": "lg_throttle",
    "tex": "tex_throttle",
    "imc": "imc_miss",
    "no_inst": "no_instruction",
    "dispatch": "dispatch_stall",
    "sleep": "sleeping",
}
STALLS: Mapping[str, tuple[str, str]] = {
    "long_scoreboard": (
        "data from global or local memory is not there yet",
        "have more loads on their way in each thread: wider loads (float4), an unrolled loop, cp.async or tensor copies a stage ahead",
    ),
    "short_scoreboard": (
        "results of shared memory or special functions are not there yet",
        "read shared memory a step ahead into registers; look for bank conflicts; fewer expf and divisions",
    ),
    "lg_throttle": (
        "the queue of global and local accesses is full",
        "make fewer, wider accesses: neighbouring lanes on neighbouring addresses, float4, reuse through shared memory; look for spills",
    ),
    "mio_throttle": (
        "the queue to shared memory and special functions is full",
        "read shared memory wider (128 bits) and reuse what was read from registers: more results a thread",
    ),
    "tex_throttle": ("the texture queue is full", "make fewer texture accesses, or use plain loads"),
    "barrier": (
        "warps wait at a barrier for others",
        "make the warps' work between barriers more alike, use fewer barriers or named ones for part of the block, or smaller blocks",
    ),
    "wait": ("a fixed latency between dependent instructions", "have more independent arithmetic in each thread: more results a thread"),
    "not_selected": (
        "another warp was chosen to issue: there are enough of them",
        "occupancy is not what is missing: fewer warps with more registers each may do more",
    ),
    "math_pipe_throttle": (
        "the arithmetic pipe is busy",
        "the pipe is what binds: do less arithmetic, or move it to another pipe or to tensor cores",
    ),
    "dispatch_stall": ("the dispatcher holds back", "look for register bank conflicts in the SASS"),
    "no_instruction": ("instructions are not there yet", "make the code smaller: unroll less, so that the loop fits the instruction cache"),
    "imc_miss": ("constants are not in their cache", "read the same constants in neighbouring instructions, or pass fewer parameters"),
    "branch_resolving": (
        "a branch is not decided yet",
        "fewer branches in the inner loop: predicate, unroll, or split the ragged edge off",
    ),
    "membar": ("a memory fence is not done", "use a narrower fence (block instead of device), or fewer"),
    "drain": (
        "stores at the end are not done",
        "the end of a block waits for its stores: fewer and wider stores, or more blocks to overlap with",
    ),
    "sleeping": ("warps sleep", "shorter pauses in spin loops"),
    "gmma": ("tensor-core groups are not done", "keep one more wgmma group in flight before waiting"),
    "warpgroup_arrive": ("warp groups wait to start wgmma", "start wgmma groups in batches, with one fence for several"),
}
_FEW, _MANY = 0.10, 0.25
# Units whose shares of their peaks are this near bind together, in %.
_CLOSE = 5.0


@dataclass(frozen=True)
class Summary:
    """Sentences for a person: what binds the launch, facts, stalls, advice in the order of its weight, and the costliest source lines."""

    bound: str
    facts: tuple[str, ...] = ()
    stalls: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}


def summarize_launch(kernels: Sequence[KernelMetrics], lines: Sequence[LineStalls], notes: Iterable[str] = ()) -> Summary:
    """Return the summary of a launch: of its longest kernel, with the others named."""
    main = max(kernels, key=lambda k: k.metrics.get(TIME, 0.0))
    m = main.metrics
    missing = [name for name in (TIME, *UNITS.values()) if name not in m]
    said = [*notes, *(f"not measured by this ncu: {name}" for name in missing)]
    facts = list(_list_facts(main))
    if len(kernels) > 1:
        facts.append(f"{len(kernels)} kernels in the launch; this is {main.kernel}, the longest")
    stalls = find_stalls(m)
    return Summary(
        describe_bound(m),
        tuple(facts),
        tuple(f"{100 * share:.0f} % of stalled time: {STALLS[name][0]} ({name})" for name, share in stalls[:3] if name in STALLS),
        tuple(dict.fromkeys([*_advise_on_bound(m), *_advise_on_traffic(m), *_advise_on_stalls(m, stalls), *_advise_on_shape(m)])),
        tuple(describe_lines(lines)),
        tuple(said),
    )


def describe_bound(m: Mapping[str, float]) -> str:
    """Return what binds a launch, in a sentence."""
    found = {unit: m[name] for unit, name in UNITS.items() if name in m}
    if not found:
        return "what binds it is not known: no unit's throughput was measured"
    unit = max(found, key=lambda u: found[u])
    share, name = found[unit], unit
    if unit == "SM":
        pipes = {pipe: m[metric] for pipe, metric in PIPES.items() if metric in m}
        name = max(pipes, key=lambda p: pipes[p]) if pipes else unit
    if share >= BUSY:
        together = {name: share} | {u: value for u, value in found.items() if u != unit and value >= max(share - _CLOSE, BUSY)}
        shares = " and ".join(f"{value:.0f} %" for value in together.values())
        peaks = "its peak" if len(together) == 1 else "their peaks"
        return f"{'bound by' if share >= BINDS else 'near the bound of'} {' and '.join(together)}: {shares} of {peaks}"
    waves = m.get("launch__waves_per_multiprocessor")
    if waves is not None and waves < 0.5:
        fill = f"its blocks fill {100 * waves:.0f} % of one wave"
        return f"too small for the GPU: {fill}; the busiest unit is {name}, at {share:.0f} % of its peak"
    return f"bound by latency: no unit is above {share:.0f} % of its peak ({name})"


def find_stalls(m: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the reasons why warps did not issue, each with its share of the time that warps were stalled, largest first."""
    cycles = {
        name.removeprefix(_STALL_PREFIX).removesuffix(_STALL_SUFFIX): value
        for name, value in m.items()
        if name.startswith(_STALL_PREFIX) and name.endswith(_STALL_SUFFIX)
    }
    waits = {name: value for name, value in cycles.items() if name not in _NO_STALLS}
    whole = sum(waits.values())
    return sorted(((name, value / whole) for name, value in waits.items()), key=lambda pair: -pair[1]) if whole > 0 else []


def _list_facts(kernel: KernelMetrics) -> Iterator[str]:
    m = kernel.metrics
    grid, block = ("×".join(map(str, size)) for size in (kernel.grid, kernel.block))
    yield f"{kernel.kernel.split('(')[0].removeprefix('void ')}, grid {grid}, block {block}"
    if TIME in m:
        yield f"{m[TIME] / 1000:.4g} µs under the profiler, caches as they were: no timing"
    if shares := [f"{unit} {m[name]:.0f} %" for unit, name in UNITS.items() if name in m]:
        yield "of peak: " + ", ".join(shares)
    achieved, possible = m.get("sm__warps_active.avg.pct_of_peak_sustained_active"), m.get("sm__maximum_warps_per_active_cycle_pct")
    if achieved is not None and possible is not None:
        yield f"occupancy {achieved:.0f} % of {possible:.0f} % possible, limited by {find_limiter(m)}"
    moved = [m.get(f"dram__bytes_{way}.sum") for way in ("read", "write")]
    if moved[0] is not None and moved[1] is not None:
        hits = m.get("lts__t_sector_hit_rate.pct")
        rate = "" if hits is None else f"; L2 hit rate {min(hits, 100.0):.0f} %"
        yield f"DRAM: {_format_bytes(moved[0])} read, {_format_bytes(moved[1])} written{rate}"


def _format_bytes(value: float) -> str:
    text = format_count(int(value))
    return f"{text}B" if text[-1].isalpha() else f"{text} B"


def find_limiter(m: Mapping[str, float]) -> str:
    """Return what limits the blocks of an SM, "" where it was not measured."""
    found = {name: m.get(f"launch__occupancy_limit_{name}") for name in ("registers", "shared_mem", "warps", "blocks")}
    known = {name: value for name, value in found.items() if value is not None}
    words = {"shared_mem": "shared memory", "warps": "warps a block", "blocks": "blocks an SM"}
    least = min(known.values(), default=0.0)
    return " and ".join(words.get(name, name) for name, value in known.items() if value == least)


_ADVICE_BY_UNIT: Mapping[str, str] = {
    "DRAM": "move fewer bytes: fuse with what comes before or after, narrower types, no second reading of the same data",
    "L2": "read less through L2: larger tiles, more reuse in shared memory and registers, blocks that share data beside each other",
    "L1 and shared memory": "read less through L1: reuse from registers, more results a thread, wider accesses",
}


def _advise_on_bound(m: Mapping[str, float]) -> Iterator[str]:
    found = {unit: m[name] for unit, name in UNITS.items() if name in m}
    # Of several that bind, the one farthest from the multiprocessor: the others carry its traffic.
    unit = next((u for u, value in found.items() if value >= max(BINDS, max(found.values()) - _CLOSE)), "")
    if unit:
        yield _ADVICE_BY_UNIT.get(unit, "do less of that work, or on another pipe; at this share of the peak little is left to gain")


def _advise_on_traffic(m: Mapping[str, float]) -> Iterator[str]:
    sectors, ideal = m.get("memory_l2_theoretical_sectors_global"), m.get("memory_l2_theoretical_sectors_global_ideal")
    if sectors and ideal and sectors > (1 + _FEW) * ideal:
        yield f"global accesses touch {sectors / ideal:.1f} times the sectors they need: let neighbouring lanes read neighbouring addresses"
    cycles = m.get("sm__cycles_active.avg", 0.0) * m.get("device__attribute_multiprocessor_count", 0.0)
    for way, word in (("ld", "reads"), ("st", "writes")):
        conflicts = m.get(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{way}.sum", 0.0)
        if cycles and conflicts > 0.05 * cycles:
            share = 100 * conflicts / cycles
            yield f"bank conflicts of shared-memory {word} take {share:.0f} % of the cycles: pad rows, or swizzle columns"
    if spills := m.get("sass__inst_executed_register_spilling"):
        yield f"{format_count(int(spills))} instructions move spilled registers: smaller patches a thread, or fewer blocks an SM"


def _advise_on_stalls(m: Mapping[str, float], stalls: Sequence[tuple[str, float]]) -> Iterator[str]:
    for name, share in stalls[:3]:
        if share >= _MANY and name in STALLS and not (name == "not_selected" and _is_busy(m)):
            yield STALLS[name][1]


def _is_busy(m: Mapping[str, float]) -> bool:
    return max((m[name] for name in UNITS.values() if name in m), default=0.0) >= BINDS


def _advise_on_shape(m: Mapping[str, float]) -> Iterator[str]:
    possible, waves = m.get("sm__maximum_warps_per_active_cycle_pct"), m.get("launch__waves_per_multiprocessor")
    if possible is not None and possible <= 50 and not _is_busy(m):
        yield f"at most {possible:.0f} % of an SM's warps fit, by {find_limiter(m)}: with latency to hide, make room for more"
    if waves is not None and waves > 0 and waves % 1 and waves < 4 and (idle := 1 - waves / -(-waves // 1)) >= 0.15:
        yield f"{waves:.2f} waves of blocks: {100 * idle:.0f} % of the GPU idles in the last; another tile size, or a persistent kernel"


def describe_lines(lines: Sequence[LineStalls], num_lines: int = 5) -> Iterator[str]:
    """Yield the source lines where warps were found most often, with the reason they mostly waited for."""
    whole = sum(line.samples for line in lines)
    for line in lines[:num_lines]:
        share = line.samples / whole
        if share < 0.02:
            return
        reason = max(line.stalls, key=lambda name: line.stalls[name], default="")
        why = f", mostly {SOURCE_REASONS.get(reason, reason)}" if reason else ""
        yield f"{os.path.basename(line.file)}:{line.line} {100 * share:.0f} %{why}: {line.text}"  # noqa: PTH119 - a path of another machine
