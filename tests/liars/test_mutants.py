"""Kernels of the project's own ops with one line changed as mistakes are made: right in what the op lists, and refused by the larger proof.

Each is built from a copy of the op's folder and judged by the op's own reference and sampling.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from device import Device, read_settings
from device.toolchain import find_toolchain
from harness.benchmark.workers import Job, WorkerSetup, verify_variants
from harness.build.binding import build_binding
from harness.build.builder import build_op
from harness.discover import find_op
from harness.records.provenance import find_device_kind
from harness.testing import find_test_target
from harness.verify.bias import pool
from harness.verify.findings import Fault, FaultKind, VerifyResult
from harness.verify.plan import THOROUGH, Effort, make_plan

pytestmark = pytest.mark.slow  # each is compiled and proved
OPS = Path(__file__).parents[2] / "ops"
WRONG, UNWRITTEN, READS_BEYOND = "mismatch", "not_written", "out_of_bounds_read"
# Where a wild store goes depends on what lies there.
WRITES_WILDLY = ("out_of_bounds_write", "guard_overwritten", "input_written", WRONG)


@dataclass(frozen=True)
class Mutant:
    """A variant of an op in which ``old`` in ``file`` (below ``ops/``) is ``new``, and what it must be refused for."""

    op: str
    variant: str
    name: str
    file: str
    old: str
    new: str
    reasons: tuple[str, ...]

    @property
    def id(self) -> str:
        return f"{self.op}-{self.name}"


_NORM, _NAIVE_NORM, _REGISTERS = "common/norm_backward.cuh", "naive/threads64", "rows_in_registers/threads1_rows256_elems8_blocks528"


def norm(op: str, variant: str, name: str, old: str, new: str, *reasons: str) -> Mutant:
    return Mutant(op, variant, name, _NORM, old, new, reasons)


MUTANTS = (
    # Products of a row and a stride in 32 bits.
    norm(
        "layernorm_backward",
        _NAIVE_NORM,
        "signed_rows_of_x",
        "x(p.x + row * p.ldx)",
        "x(p.x + static_cast<int>(row) * static_cast<int>(p.ldx))",
        READS_BEYOND,
        WRONG,
    ),
    norm(
        "rmsnorm_backward",
        "block_passes/threads512_blocks132",
        "unsigned_rows_of_dx",
        "dx(p.dx + row * p.lddx)",
        "dx(p.dx + static_cast<unsigned>(row) * static_cast<unsigned>(p.lddx))",
        *WRITES_WILDLY,
    ),
    # Sums that end early, or forget some.
    norm(
        "layernorm_backward",
        _NAIVE_NORM,
        "sums_of_50000_rows",
        "for (std::int64_t row = 0; row < p.rows; ++row) {",
        "for (std::int64_t row = 0; row < min(p.rows, 50000l); ++row) {",
        WRONG,
    ),
    norm(
        "layernorm_backward",
        _REGISTERS,
        "sums_of_256_parts",
        "if (i + u * kLanes < p.num_partials)",
        "if (i + u * kLanes < min(p.num_partials, 256))",
        WRONG,
    ),
    norm(
        "rmsnorm_backward",
        _REGISTERS,
        "forgets_the_last_row_of_many",
        "const bool is_real = row < p.rows;\n        if constexpr (kIsAhead) {",
        "const bool is_real = row < p.rows - (p.rows > 20000);\n        if constexpr (kIsAhead) {",
        UNWRITTEN,
    ),
    norm(
        "rmsnorm_backward",
        "block_passes/threads512_blocks132",
        "columns_in_16_bits",
        "make_span<Span, kAccess>(static_cast<int>(p.columns), group.rank, at.dx);",
        "make_span<Span, kAccess>(static_cast<unsigned short>(p.columns), group.rank, at.dx);",
        UNWRITTEN,
        WRONG,
    ),
    norm(
        "rmsnorm_backward",
        _NAIVE_NORM,
        "late_rows",
        "at.dx[j] = from_float<Element>(slope +",
        "at.dx[j] = from_float<Element>((row > 60000 ? -slope : slope) +",
        WRONG,
    ),
    Mutant(
        "cross_entropy",
        "naive/threads64",
        "signed_rows",
        "cross_entropy/kernels.cu",
        "+ row * params.ldlogits;",
        "+ static_cast<int>(row) * static_cast<int>(params.ldlogits);",
        (READS_BEYOND, WRONG),
    ),
    Mutant(
        "cross_entropy",
        "naive/threads64",
        "late_rows",
        "cross_entropy/kernels.cu",
        "const float value = find_gradient(params, result, to_float(logits[j]), j == label, weight);",
        "const float value = find_gradient(params, result, to_float(logits[j]), j == label, row > 1000000 ? -weight : weight);",
        (WRONG,),
    ),
    Mutant(
        "cross_entropy",
        "block_online/threads128",
        "late_rows_of_blocks",
        "cross_entropy/kernels.cu",
        "const float value = find_gradient(params, result, x.values[i], column + i == label, weight);",
        "const float value = find_gradient(params, result, x.values[i], column + i == label, group.row > 500000 ? -weight : weight);",
        (WRONG,),
    ),
    Mutant(
        "cross_entropy",
        "naive/threads64",
        "loss_of_9000_rows",
        "cross_entropy/kernels.cu",
        "row < params.rows; row += kThreads) sum +=",
        "row < min(params.rows, 9000l); row += kThreads) sum +=",
        (WRONG,),
    ),
    Mutant(
        "cross_entropy",
        "naive/threads64",
        "counts_rows_in_16_bits",
        "cross_entropy/kernels.cu",
        "for (int warp = 1; warp < kPrepareThreads / kWarpSize; ++warp) count += partials[warp];",
        "for (int warp = 1; warp < kPrepareThreads / kWarpSize; ++warp) count = (count + partials[warp]) & 0xffff;",
        (WRONG,),
    ),
    Mutant(
        "cross_entropy",
        "naive/threads64",
        "labels_in_16_bits",
        "cross_entropy/kernels.cu",
        "j == label, weight)",
        "(j ^ label) % 65536 == 0, weight)",
        (WRONG,),
    ),
    Mutant(
        "cross_entropy",
        "row_in_registers/threads4_rows128_elems4",
        "later_rounds",
        "cross_entropy/registers.cuh",
        "if (row < params.rows) span.store(gradient, c, x[c]);",
        "if (row < params.rows && base - first < 100000) span.store(gradient, c, x[c]);",
        (UNWRITTEN, WRONG),
    ),
    Mutant(
        "embedding",
        "naive/threads256",
        "signed_rows_of_y",
        "embedding/kernels.cu",
        "static_cast<Word*>(p.y)[i * p.ldy + j]",
        "static_cast<Word*>(p.y)[static_cast<int>(i) * static_cast<int>(p.ldy) + j]",
        WRITES_WILDLY,
    ),
    Mutant(
        "embedding",
        "row_groups/threads32_rows4",
        "unsigned_rows_of_the_table",
        "embedding/kernels.cu",
        "static_cast<const Word*>(p.table) + row * p.ldtable;",
        "static_cast<const Word*>(p.table) + static_cast<unsigned>(row) * static_cast<unsigned>(p.ldtable);",
        (WRONG,),
    ),
    Mutant(
        "embedding",
        "row_groups/threads512_rows1",
        "tables_of_65536_rows",
        "embedding/kernels.cu",
        "read_index<Index>(p.indices, group.row, p.vocabulary, group.rank == 0, p.status);",
        "read_index<Index>(p.indices, group.row, min(p.vocabulary, 65536l), group.rank == 0, p.status);",
        (WRONG, "nan", "launch_error", "trap"),
    ),
    Mutant(
        "embedding",
        "flat/threads256_items4",
        "divides_in_32_bits",
        "embedding/kernels.cu",
        "return number / accesses;",
        "return static_cast<std::uint32_t>(number) / accesses;",
        (*WRITES_WILDLY, READS_BEYOND, UNWRITTEN),
    ),
    Mutant(
        "embedding",
        "row_groups/threads32_rows4",
        "forgets_the_last_row_of_many",
        "embedding/kernels.cu",
        "if (group.row >= p.count) return;",
        "if (group.row >= p.count - (p.count > 100000)) return;",
        (UNWRITTEN,),
    ),
    Mutant(
        "embedding",
        "flat/threads256_items1",
        "late_accesses",
        "embedding/kernels.cu",
        "if (is_right[u] && number < p.total) loaded[u]",
        "if (is_right[u] && number < p.total && number < 40000000) loaded[u]",
        ("nan", WRONG),
    ),
    Mutant(
        "embedding_backward",
        "direct/threads256",
        "signed_rows_of_dy",
        "embedding_backward/direct.cuh",
        "picked.places[at] * p.lddy + column",
        "picked.places[at] * static_cast<int>(p.lddy) + column",
        (READS_BEYOND, WRONG),
    ),
    Mutant(
        "embedding_backward",
        "naive/threads256",
        "sums_of_65536_indices",
        "embedding_backward/kernels.cu",
        "for (std::int64_t i = 0; i < p.count; ++i) {",
        "for (std::int64_t i = 0; i < min(p.count, 65536l); ++i) {",
        (WRONG,),
    ),
    Mutant(
        "embedding_backward",
        "direct/threads256",
        "signed_rows_of_the_table",
        "embedding_backward/direct.cuh",
        "(first + row) * p.lddtable + column",
        "static_cast<int>(first + row) * static_cast<int>(p.lddtable) + column",
        WRITES_WILDLY,
    ),
    Mutant(
        "embedding_backward",
        "direct/threads256",
        "late_rows_of_the_table",
        "embedding_backward/direct.cuh",
        "if (picked.rows[at] != row) continue;",
        "if (picked.rows[at] != row || first > 200000) continue;",
        (WRONG,),
    ),
    Mutant(
        "embedding_backward",
        "segments/threads8_rows32_chunk32",
        "keys_in_16_bits",
        "embedding_backward/kernels.cu",
        "keys[i] = static_cast<std::uint32_t>(index < 0 ? p.vocabulary : index);",
        "keys[i] = index < 0 ? static_cast<std::uint32_t>(p.vocabulary) : static_cast<std::uint16_t>(index);",
        (WRONG,),
    ),
    Mutant(
        "embedding_backward",
        "tables/threads256_blocks264",
        "sums_of_100_slabs",
        "embedding_backward/tables.cuh",
        "slab < slices.num_slabs; slab += kLanes",
        "slab < min(slices.num_slabs, 100l); slab += kLanes",
        (WRONG,),
    ),
    *(
        Mutant(
            "reduce",
            variant,
            f"argmax_in_fp32_{variant.partition('/')[0]}",
            "reduce/reductions.cuh",
            "return key > state.key ? State{key, place} : state;",
            "return key > state.key ? State{key, static_cast<std::int64_t>(static_cast<float>(place))} : state;",
            (WRONG,),
        )
        for variant in (
            "row_groups/threads512_rows1",
            "row_parts/threads256_blocks1056",
            "whole/threads256_blocks1056",
        )
    ),
)


def write_mutant(mutant: Mutant, root: Path) -> Path:
    """Write a folder of ops with the changed one; returns the op's own."""
    shutil.copytree(OPS / mutant.op, root / mutant.op, ignore=shutil.ignore_patterns("__pycache__"))
    if mutant.file.startswith("common/"):
        shutil.copytree(OPS / "common", root / "common")
    else:
        (root / "common").symlink_to(OPS / "common")
    path = root / mutant.file
    text = path.read_text()
    assert text.count(mutant.old) == 1, f"{mutant.file} has changed: {mutant.old!r} is there {text.count(mutant.old)} times"
    path.write_text(text.replace(mutant.old, mutant.new))
    return root / mutant.op


def prove(mutant: Mutant, root: Path, device: Device) -> tuple[VerifyResult, VerifyResult]:
    """Build a mutant and verify it; return what the listed problems say of it alone, which come first, and what all do."""
    toolchain, settings = find_toolchain(), read_settings()
    loaded, own = find_op(mutant.op, write_mutant(mutant, root).parent), find_op(mutant.op)
    (variant,) = loaded.op.select_variants([mutant.variant])
    (build,) = build_op(loaded, [variant], toolchain=toolchain, target=find_test_target())
    assert build.library is not None, build.error
    # Many launches of one problem find none of these, and would be told of with a listed one.
    effort = replace(THOROUGH, num_launches=0)
    binding, kind = build_binding(own, toolchain), find_device_kind(device)
    setup = WorkerSetup(loaded.folder, binding, kind, emulator_workers=settings.jobs, effort=effort)
    ((_, drawn),) = verify_variants(setup, mutant.op, [Job(build.variant, build.library)], num_workers=1)
    problems = drawn.problems[: len(make_plan(own.op.narrow(variant), Effort()))]
    bias = pool(p.bias for p in problems).find_fault()
    faults = (Fault(FaultKind.BIASED, "bias", bias),) if bias else ()
    return replace(drawn, problems=problems, faults=faults, proof="listed"), drawn


def describe(result: VerifyResult) -> str:
    large = [f"{p.problem}: {p.status} {p.reason}" for p in result.problems if p.large]
    return "\n".join([*(f.describe() for f in result.all_faults), *large])


@pytest.mark.parametrize("mutant", MUTANTS, ids=[m.id for m in MUTANTS])
def test_a_mutant_is_refused_for_the_right_reason_by_the_larger_proof_alone(mutant: Mutant, tmp_path: Path, device: Device) -> None:
    if device.observer is None:
        pytest.skip("what these write beyond their tensors is no finding on a GPU, and would hit others'")
    listed, drawn = prove(mutant, tmp_path, device)
    assert listed.ok, f"found by the listed problems, so that it says nothing of the drawn ones:\n{describe(listed)}"
    assert len(listed.problems) < len(drawn.problems) and drawn.reason in mutant.reasons, describe(drawn)
