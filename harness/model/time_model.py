"""The time model: microseconds of a variant on a named GPU, from counts, machine code and occupancy, with an interval.

A launch is described by *terms*: for each resource the time it would take if nothing else limited the launch. Resources of an SM (issue
slots, arithmetic pipes, shared memory, the L1) are loaded by the blocks of the fullest SM; the L2, the DRAM and the unit that starts
blocks by all of them. Beside these *throughput* terms stands the *latency* term: how long one block's chain of dependent work takes, times
the rounds in which blocks follow each other on an SM (Little's law: what is in flight is fixed by occupancy and by the loads that a warp
has on their way).

Terms are joined by p-norms: with p of a few units the largest decides and those close to it add a little, as resources that are used at
the same time do. Those of an SM, which the same warps load in turn, have a p of their own; the result, the latency, the L2, the DRAM and
the blocks have another. Each term has a fitted factor near one (see :mod:`harness.model.fit`), each latency its clocks; both are in
``machines.toml`` with the record they were fitted to. The interval is the spread of the residuals on points that the fit did not see: on
other variants for a kernel that the fit knows, on other ops for any other kernel.

Sources: Hong & Kim, "An analytical model for a GPU architecture" (ISCA 2009), for latency against throughput; Williams, Waterman &
Patterson, "Roofline" (CACM 2009), for bandwidths; Volkov, "Understanding Latency Hiding on GPUs" (2016), for warps in flight.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.build.sass import CLASSES
from harness.model.features import Features, LaunchFeatures
from harness.spec import SpecError
from harness.targets import Target

# Resources of an SM, and those of the whole chip. Reading, writing and merging partly written sectors share the L2: they are added up, as
# are the DRAM's transfers and what its short runs of bytes cost.
SM_TERMS = ("issue", "fp32", "fp64", "fp16", "integer", "special", "tensor", "shared", "l1_requests", "l1_lines", "l1_sectors", "local")
L2_TERMS = ("l2_read", "l2_write", "l2_partial")
DRAM_TERMS = ("dram", "dram_runs")
THROUGHPUTS = (*SM_TERMS, *L2_TERMS, *DRAM_TERMS, "blocks")
LATENCIES = ("chain", "near", "far", "barrier")
PARAMETERS = (*THROUGHPUTS, *(f"latency_{name}" for name in LATENCIES), "overhead_us", "norm_sm", "norm")

MACHINES = Path(__file__).with_name("machines.toml")
_SECTOR_BYTES = 32
_PAGE_BYTES = 1024.0
# Above this many blocks an SM their number is as good as even: whole blocks no longer show.
_MANY_BLOCKS = 20.0
# Of a warp alone, where the machine code is not known.
_CLOCKS_PER_INSTRUCTION = 3.0


@dataclass(frozen=True)
class Machine:
    """Constants of one target, and the fitted parameters with where they come from. Rates as in ``machines.toml``.

    ``interval`` and ``unseen_interval`` are measured over modelled times that held 80 % of the residuals: of variants, and of ops, that
    the fit had not seen. ``kernels`` (``op/kernel``) are those with variants in the fit.
    """

    name: str
    rates: Mapping[str, float]
    parameters: Mapping[str, float]
    interval: tuple[float, float]
    unseen_interval: tuple[float, float]
    kernels: frozenset[str]
    record: str

    def knows(self, op: str, variant: str) -> bool:
        """Return whether variants of this kernel were among those fitted to."""
        return f"{op}/{variant.partition('/')[0]}" in self.kernels

    def find_interval(self, op: str, variant: str) -> tuple[float, float]:
        """Return measured over modelled times of a variant: an interval that held 80 % of what was held out alike."""
        return self.interval if self.knows(op, variant) else self.unseen_interval

    def make_note(self, op: str, variant: str) -> str:
        """Say how far a variant's modelled time can be trusted."""
        low, high = self.find_interval(op, variant)
        span = f"lay within {low:.2f} to {high:.2f} times it"
        if self.knows(op, variant):
            return f"model: fitted to times measured on this target; 80 % of those held out {span}"
        return f"model, for a kernel that the fit has not seen: 80 % of the times of whole ops held out {span}"


@dataclass(frozen=True)
class Prediction:
    """A modelled time with the interval that held 80 % of the validation's residuals; ``bound`` is the largest term, ``terms_us`` all."""

    time_us: float
    low_us: float
    high_us: float
    bound: str
    terms_us: Mapping[str, float]


def has_machine(name: str) -> bool:
    """Return whether the model has constants for a target."""
    return name in tomllib.loads(MACHINES.read_text())


@cache
def load_machine(name: str) -> Machine:
    """Read a target's constants; raises :class:`SpecError` for a target that has none."""
    data = tomllib.loads(MACHINES.read_text())
    if name not in data:
        raise SpecError(f"the time model has no constants for target {name!r}; it has: {', '.join(data)}")
    table = data[name]
    fitted = table["fitted"]
    missing = [p for p in PARAMETERS if p not in fitted["parameters"]]
    if missing:
        raise SpecError(f"{MACHINES.name}: target {name} lacks the parameters {', '.join(missing)}")
    intervals = [(float(low), float(high)) for low, high in (fitted["interval"], fitted["unseen_interval"])]
    kernels = frozenset(fitted["kernels"])
    rates = {key: float(value) for key, value in table.items() if isinstance(value, int | float)}
    parameters = {p: float(fitted["parameters"][p]) for p in PARAMETERS}
    return Machine(name, rates, parameters, intervals[0], intervals[1], kernels, str(fitted["record"]))


def find_terms(features: Features, target: Target, rates: Mapping[str, float]) -> dict[str, float]:
    """Return each throughput term in microseconds, and for each latency how often it is waited for in sequence, over the clock in MHz."""
    terms = dict.fromkeys((*THROUGHPUTS, *LATENCIES), 0.0)
    total = sum(launch.num_blocks for launch in features.launches)
    for launch in features.launches:
        share = launch.num_blocks / total
        for name, value in _find_launch_terms(launch, features, share, target, rates).items():
            terms[name] += value
    return terms


def _find_launch_terms(
    launch: LaunchFeatures, features: Features, share: float, target: Target, rates: Mapping[str, float]
) -> dict[str, float]:
    count, blocks = launch.per_block, launch.num_blocks
    per_sm = blocks / target.num_sms
    on_fullest = math.ceil(per_sm) if per_sm < _MANY_BLOCKS else per_sm
    sm_us = on_fullest / rates["clock_mhz"]
    executed = count_executed(launch)
    shared = ("shared_load_wavefronts", "shared_store_wavefronts", "shared_atomic_wavefronts", "async_copy_wavefronts", "shuffles")
    requests = ("global_loads", "global_stores", "global_atomics")
    sectors = ("global_load_sectors", "global_store_sectors", "global_atomic_sectors")
    terms = {
        "issue": executed / rates["issue_rate"] * sm_us,
        "fp32": count("fp32") / rates["fp32_rate"] * sm_us,
        "fp64": count("fp64") / rates["fp64_rate"] * sm_us,
        "fp16": count("fp16") / rates["fp16_rate"] * sm_us,
        "integer": _count_integer(launch) / rates["integer_rate"] * sm_us,
        "special": (count("special") + count("conversion")) / rates["special_rate"] * sm_us,
        "tensor": _find_tensor_seconds(launch, target) * 1e6 * on_fullest * target.num_sms,
        "shared": sum(map(count, shared)) / rates["shared_rate"] * sm_us,
        "l1_requests": sum(map(count, requests)) / rates["l1_request_rate"] * sm_us,
        "l1_lines": max(count("l1_lines"), sum(map(count, requests))) / rates["l1_line_rate"] * sm_us,
        "l1_sectors": sum(map(count, sectors)) / rates["l1_sector_rate"] * sm_us,
        "local": launch.sass_per_block("local_sectors") / rates["l1_sector_rate"] * sm_us,
        "blocks": blocks / rates["blocks_per_us"],
    }
    misses = find_missed_bytes(launch)
    stored = count("global_store_sectors") + count("global_atomic_sectors") + count("bulk_store_sectors")
    partial = stored * find_partial_share(launch)
    per_sector_us = 1e6 * _SECTOR_BYTES * blocks / rates["l2_bytes_per_s"]
    terms |= {
        "l2_read": misses / _SECTOR_BYTES * per_sector_us,
        "l2_write": (stored - partial) * per_sector_us,
        "l2_partial": partial * per_sector_us,
    }
    compulsory = share * (features.bytes_read + features.bytes_written)
    terms["dram"] = 1e6 * (compulsory + blocks * find_reread_bytes(launch, target, rates)) / rates["dram_bytes_per_s"]
    terms["dram_runs"] = terms["dram"] * rates["dram_run_bytes"] / find_run_bytes(launch)
    return terms | _find_latencies(launch, executed, target, rates)


def _find_latencies(launch: LaunchFeatures, executed: float, target: Target, rates: Mapping[str, float]) -> dict[str, float]:
    warps = launch.warps_per_block
    at_once = target.num_sms * max(launch.blocks_per_sm, 1)
    rounds = launch.num_blocks / at_once
    rounds = max(1.0, rounds if rounds > _MANY_BLOCKS else math.ceil(rounds)) / rates["clock_mhz"]
    waits = launch.sass_per_block("global_waits") if launch.sass else launch.per_block("global_loads")
    chain = launch.sass_per_block("chain_clocks") if launch.sass else _CLOCKS_PER_INSTRUCTION * executed
    requested = launch.per_block("global_load_sectors")
    far = min(1.0, launch.per_block("l1_load_miss_sectors") / requested) if requested and "l1_load_miss_sectors" in launch.counts else 1.0
    per_warp = rounds / warps
    return {
        "chain": chain * per_warp,
        "near": waits * (1.0 - far) * per_warp,
        "far": waits * far * per_warp,
        "barrier": launch.per_block("barriers") * per_warp,
    }


def find_run_bytes(launch: LaunchFeatures) -> float:
    """Return the mean length of the runs of bytes that a block touches in global memory; a DRAM page apart counts as far apart."""
    runs = launch.per_block("global_block_runs")
    touched = launch.per_block("global_block_bytes_read") + launch.per_block("global_block_bytes_written")
    return min(max(touched / runs, _SECTOR_BYTES), _PAGE_BYTES) if runs else _PAGE_BYTES


def find_partial_share(launch: LaunchFeatures) -> float:
    """Return which share of the sectors that requests store to is not stored to whole.

    All of them where a sector gets half its bytes or fewer on average, none where it gets all, and in proportion between.
    """
    stored = launch.per_block("global_store_sectors")
    filled = launch.per_block("global_store_bytes") / (_SECTOR_BYTES * stored) if stored else 1.0
    return min(1.0, max(0.0, 2.0 * (1.0 - filled)))


def count_executed(launch: LaunchFeatures) -> float:
    """Return warp instructions of an average block: of machine code where that is known, kept within 0.3 and 2 times PTX's."""
    ptx = launch.per_block("warp_instructions")
    if not launch.sass:
        return ptx
    return min(max(sum(map(launch.sass_per_block, CLASSES)), 0.3 * ptx), 2.0 * ptx)


def _count_integer(launch: LaunchFeatures) -> float:
    if not launch.sass:
        return launch.per_block("integer")
    return min(launch.sass_per_block("integer") + launch.sass_per_block("imad"), 2.0 * launch.per_block("warp_instructions"))


def _find_tensor_seconds(launch: LaunchFeatures, target: Target) -> float:
    """Return the seconds that the whole chip needs for one block's tensor operations."""
    units = {"f16": "bf16_tensor", "bf16": "bf16_tensor", "tf32": "tf32_tensor", "f8": "fp8_tensor", "i8": "fp8_tensor", "f64": "fp64"}
    peaks = target.peak_flops
    return sum(launch.per_block(f"tensor_flops_{kind}") / peaks[unit] for kind, unit in units.items() if unit in peaks)


def find_missed_bytes(launch: LaunchFeatures) -> float:
    """Return bytes that an average block asks of the L2: its loads' misses in the modelled L1, or at least its own distinct bytes."""
    bulk = _SECTOR_BYTES * launch.per_block("bulk_load_sectors")
    own = launch.per_block("global_block_bytes_read")
    return max(_SECTOR_BYTES * launch.per_block("l1_load_miss_sectors"), own - bulk) + bulk


def find_reread_bytes(launch: LaunchFeatures, target: Target, rates: Mapping[str, float]) -> float:
    """Return bytes that an average block reads again from the DRAM: what it reads twice while the resident blocks overflow the L2."""
    own = launch.per_block("global_block_bytes_read")
    resident = min(launch.num_blocks, target.num_sms * max(launch.blocks_per_sm, 1)) * own
    kept = min(1.0, rates["l2_effective_bytes"] / resident) if resident else 1.0
    return max(find_missed_bytes(launch) - own, 0.0) * (1.0 - kept)


def combine(terms: Mapping[str, float], parameters: Mapping[str, float]) -> float:
    """Return the modelled microseconds: the norms of scaled terms and of the latency chain, and the overhead of a launch."""
    sm_norm, norm = 1.0 + parameters["norm_sm"], 1.0 + parameters["norm"]
    scaled = {name: parameters[name] * terms[name] for name in THROUGHPUTS}
    on_sm = sum(scaled[name] ** sm_norm for name in SM_TERMS) ** (1.0 / sm_norm)
    in_l2 = sum(scaled[name] for name in L2_TERMS)
    in_dram = sum(scaled[name] for name in DRAM_TERMS)
    parts = (on_sm, in_l2, in_dram, scaled["blocks"], find_latency_us(terms, parameters))
    return parameters["overhead_us"] + float(sum(part**norm for part in parts) ** (1.0 / norm))


def find_latency_us(terms: Mapping[str, float], parameters: Mapping[str, float]) -> float:
    """Return the latency term: each latency's clocks times how often it is waited for."""
    return sum(parameters[f"latency_{name}"] * terms[name] for name in LATENCIES)


def predict(features: Features, target: Target, machine: Machine | None = None) -> Prediction:
    """Model one variant on one problem. Raises :class:`SpecError` for a target without constants."""
    known = machine or load_machine(target.name)
    terms = find_terms(features, target, known.rates)
    scaled = {name: known.parameters[name] * terms[name] for name in THROUGHPUTS}
    scaled["latency"] = find_latency_us(terms, known.parameters)
    time_us = combine(terms, known.parameters)
    low, high = known.find_interval(features.op, features.variant)
    return Prediction(time_us, low * time_us, high * time_us, max(scaled, key=lambda name: scaled[name]), scaled)
