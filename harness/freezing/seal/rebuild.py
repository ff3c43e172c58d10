"""``frozen verify``: sealed kernels rebuilt from their sources alone, compared with their pinned machine code, and verified again."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.building import compile_kernel, find_other_code
from contract.index import Index
from contract.kernels import FrozenKernel, read_kernel
from contract.layout import name_manifest
from device.toolchain import Toolchain, name_remedy
from harness.benchmark.workers import Job, WorkerSetup, verify_variants
from harness.build.binding import build_binding
from harness.build.sealed import SealedVariant
from harness.discover import LoadedOp, load_op
from harness.errors import BuildError
from harness.freezing.store.findings import Finding
from harness.freezing.store.index import read_frozen_op
from harness.freezing.store.verify import check_op, check_set
from harness.spec import SpecError, Variant
from harness.terminal.figures import count_things


@dataclass(frozen=True)
class RebuildSetup:
    """What kernels are proved right on: the device's kind, the GPU it stands for, and the cores to use."""

    toolchain: Toolchain
    device: str
    target: str
    jobs: int


def check_frozen(
    frozen_dir: Path,
    ops: Sequence[str],
    setup: RebuildSetup | None,
    kernels: Sequence[str] = (),
    say: Callable[[str], None] = lambda _: None,
) -> tuple[list[Finding], int]:
    """Check ops, and what lies beside them; return what is wrong, and how many kernels were rebuilt (none without a ``setup``).

    A kernel that does not agree with its hashes is not rebuilt: what would be judged is not what was sealed.
    """
    findings = check_set(frozen_dir)
    num_rebuilt = 0
    for op in ops:
        found = check_op(frozen_dir, op)
        findings += found
        say(f"{op}: hashes, schemas and history: {'agree' if not found else count_things(len(found), 'finding')}")
        if setup is None or found:
            continue
        frozen = read_frozen_op(frozen_dir, op)
        for kernel in (k for k in frozen.kernels if not kernels or k in kernels):
            found = check_kernel(frozen, kernel, setup)
            findings += found
            num_rebuilt += 1
            say(f"{op}/{kernel}: {'rebuilt to the same machine code, and right' if not found else found[0].describe()}")
    return findings, num_rebuilt


def check_kernel(frozen: Index, name: str, setup: RebuildSetup) -> list[Finding]:
    """Rebuild a sealed kernel, compare its machine code with the manifest's, and verify it against the sealed reference."""
    kernel = read_kernel(frozen.folder, name)
    path = name_manifest(name)
    sealed_with = kernel.manifest["build"]["toolchain"]["nvcc"]
    if sealed_with != setup.toolchain.nvcc_version:
        text = f"sealed with nvcc {sealed_with}, this is nvcc {setup.toolchain.nvcc_version}: its machine code cannot be compared"
        return [Finding(frozen.op, path, "skew", f"{text}; {name_remedy(sealed_with)}")]
    with tempfile.TemporaryDirectory() as scratch:
        try:
            library = compile_kernel(kernel, setup.toolchain, Path(scratch))
            if fault := find_other_code(kernel, library):
                return [Finding(frozen.op, path, "rebuild", fault)]
            fault = _verify(kernel, library, setup)
        except (BuildError, SpecError) as error:
            return [Finding(frozen.op, path, "rebuild", str(error))]
    return [Finding(frozen.op, path, "reference", fault)] if fault else []


def _verify(kernel: FrozenKernel, library: Path, setup: RebuildSetup) -> str:
    folder = kernel.sources / kernel.op
    loaded = LoadedOp(load_op(folder), folder)
    variant = find_sealed_variant(loaded, kernel)
    binding = build_binding(loaded, setup.toolchain)
    workers = WorkerSetup(folder, binding, setup.device, emulator_workers=setup.jobs, target=setup.target)
    ((_, result),) = verify_variants(workers, kernel.op, [Job(variant, library)], num_workers=1)
    return "" if result.ok else f"{result.reason}: {result.all_faults[0].describe() if result.all_faults else 'no problem passed'}"


def find_sealed_variant(loaded: LoadedOp, kernel: FrozenKernel) -> Variant:
    """Return the variant of a sealed kernel, with the names of its sealed entry points."""
    (variant,) = loaded.op.select_variants([kernel.manifest["variant"]])
    return SealedVariant(variant.kernel, variant.values, kernel.name)


def prove_sealed(manifest: Mapping[str, Any], sources: Mapping[str, bytes], toolchain: Toolchain, scratch: Path) -> str:
    """Build a kernel from its sealed sources in a folder of its own; return "" or how its machine code differs from the manifest's."""
    kernel = FrozenKernel(manifest, scratch / str(manifest["kernel"]))
    for name, content in sources.items():
        path = kernel.sources / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    made = scratch / "made"
    made.mkdir()
    return find_other_code(kernel, compile_kernel(kernel, toolchain, made))
