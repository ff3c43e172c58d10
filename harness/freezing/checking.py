"""``frozen verify``: sealed kernels rebuilt from their sources alone, held against their pinned machine code, and proved right again."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from contract.building import compile_kernel, find_other_code
from contract.index import Index
from contract.kernels import FrozenKernel, read_kernel
from contract.layout import name_manifest
from device.toolchain import Toolchain, name_remedy
from harness.benchmark.workers import Job, WorkerSetup, verify_variants
from harness.build.builder import build_binding
from harness.discover import LoadedOp, load_op
from harness.errors import BuildError, FrozenError
from harness.freezing.consistency import check_op, check_set
from harness.freezing.reading import Finding, read_frozen_op
from harness.freezing.sealing import SealedVariant
from harness.freezing.transaction import clear_up
from harness.spec import SpecError, Variant


@dataclass(frozen=True)
class Bench:
    """What kernels are proved right on: the device's kind, the GPU it stands for, and the cores to use."""

    toolchain: Toolchain
    device: str
    target: str
    jobs: int


def check_frozen(
    frozen_dir: Path, ops: Sequence[str], bench: Bench | None, kernels: Sequence[str] = (), say: Callable[[str], None] = lambda _: None
) -> tuple[list[Finding], int]:
    """Check ops, and what lies beside them; return what is wrong, and how many kernels were rebuilt (none without a ``bench``).

    A kernel that does not agree with its hashes is not rebuilt: what would be judged is not what was sealed.
    """
    findings = check_set(frozen_dir)
    num_rebuilt = 0
    for op in ops:
        found = check_op(frozen_dir, op)
        findings += found
        say(f"{op}: hashes, schemas and history: {'agree' if not found else f'{len(found)} findings'}")
        if bench is None or found:
            continue
        frozen = read_frozen_op(frozen_dir, op)
        for kernel in (k for k in frozen.kernels if not kernels or k in kernels):
            found = check_kernel(frozen, kernel, bench)
            findings += found
            num_rebuilt += 1
            say(f"{op}/{kernel}: {'rebuilt to the same machine code, and right' if not found else found[0].describe()}")
    return findings, num_rebuilt


def check_kernel(frozen: Index, name: str, bench: Bench) -> list[Finding]:
    """Rebuild a sealed kernel, compare its machine code with the manifest's, and verify it against the sealed reference."""
    kernel = read_kernel(frozen.folder, name)
    path = name_manifest(name)
    sealed_with = kernel.manifest["build"]["toolchain"]["nvcc"]
    if sealed_with != bench.toolchain.nvcc_version:
        text = f"sealed with nvcc {sealed_with}, this is nvcc {bench.toolchain.nvcc_version}: its machine code cannot be compared"
        return [Finding(frozen.op, path, "skew", f"{text}; {name_remedy(sealed_with)}")]
    with tempfile.TemporaryDirectory() as scratch:
        try:
            library = compile_kernel(kernel, bench.toolchain, Path(scratch))
            if fault := find_other_code(kernel, library):
                return [Finding(frozen.op, path, "rebuild", fault)]
            fault = _verify(kernel, library, bench)
        except (BuildError, SpecError) as error:
            return [Finding(frozen.op, path, "rebuild", str(error))]
    return [Finding(frozen.op, path, "reference", fault)] if fault else []


def _verify(kernel: FrozenKernel, library: Path, bench: Bench) -> str:
    folder = kernel.sources / kernel.op
    loaded = LoadedOp(load_op(folder), folder)
    variant = find_sealed_variant(loaded, kernel)
    binding = build_binding(loaded, bench.toolchain)
    setup = WorkerSetup(folder, binding, bench.device, emulator_workers=bench.jobs, target=bench.target)
    ((_, result),) = verify_variants(setup, kernel.op, [Job(variant, library)], num_workers=1)
    return "" if result.ok else f"{result.reason}: {result.all_faults[0].describe() if result.all_faults else 'no problem passed'}"


def find_sealed_variant(loaded: LoadedOp, kernel: FrozenKernel) -> Variant:
    """Return the variant of a sealed kernel, with the names of its sealed entry points."""
    (variant,) = loaded.op.select_variants([kernel.manifest["variant"]])
    return SealedVariant(variant.kernel, variant.values, kernel.name)


def require_sound(frozen_dir: Path, op: str) -> Index:
    """Return an op's set if nothing in it disagrees; raises :class:`FrozenError` with the first finding else.

    What a change left that was cut short is cleared up first: it is in the way of nothing.
    """
    clear_up(frozen_dir, op)
    if findings := check_op(frozen_dir, op):
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        raise FrozenError(f"{findings[0].describe()}{more}; nothing was changed")
    return read_frozen_op(frozen_dir, op)
