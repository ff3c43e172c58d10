"""The manifest of a sealed kernel, which pins everything about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from contract.entry_points import CALLS
from contract.layout import SCHEMA_VERSION, SOURCES, hash_bytes, hash_value, make_seal, name_symbol
from device.toolchain import Toolchain
from harness.build.builder import BuildResult, compile_flags
from harness.build.resources import Resources
from harness.discover import LoadedOp
from harness.errors import FrozenError
from harness.spec import Variant
from harness.spec.conditions import Condition, Rows
from harness.targets import Target

_VARIANT_FLAG = "-DAICF_VARIANT="
# Sources that no kernel is compiled from.
_NOT_DEVICE = (".py", "pybind.cpp", "binding.hpp", "op_module.hpp", "op_module.cpp")


def list_flags(loaded: LoadedOp, variant: Variant, target: Target) -> list[str]:
    """Return nvcc's flags for a variant without include path, architecture and the name of the entry points."""
    flags = compile_flags(loaded, variant, target)
    place = flags.index("-gencode")
    flags = flags[:place] + flags[place + 2 :]
    return [f for f in flags if not f.startswith(("-I", _VARIANT_FLAG))]


def name_kernel(loaded: LoadedOp, variant: Variant, target: Target, sources: Mapping[str, bytes]) -> str:
    """Return the frozen kernel's name: the variant's id and eight digits of device sources, flags and architecture."""
    device = {name: hash_bytes(content) for name, content in sources.items() if not name.endswith(_NOT_DEVICE)}
    digest = hash_value([list_flags(loaded, variant, target), target.gencode, device])
    return f"{variant.symbol_suffix}__{digest[:8]}"


def make_manifest(
    loaded: LoadedOp,
    build: BuildResult,
    target: Target,
    toolchain: Toolchain,
    sources: Mapping[str, bytes],
    *,
    interface: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """Return a kernel's manifest, sealed.

    ``facts`` are what the gates found: ``workspace``, ``capture_safe``, ``tolerance``, ``prior`` and ``verified``.
    """
    kernel_spec = loaded.op.find_kernel(build.variant.kernel)
    if kernel_spec.domain is None or build.resources is None:
        raise FrozenError(f"kernel {kernel_spec.name} of op {loaded.op.name} has no domain, or ptxas said nothing of it")
    kernel = name_kernel(loaded, build.variant, target, sources)
    domain = kernel_spec.domain(build.variant.tunables)
    manifest: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "op": loaded.op.name,
        "kernel": kernel,
        "variant": build.variant.name,
        "arch": target.real_arch,
        "files": {f"{SOURCES}/{name}": hash_bytes(content) for name, content in sources.items()},
        "build": {
            "source": f"{SOURCES}/{loaded.op.name}/launcher.cu",
            "flags": [*list_flags(loaded, build.variant, target), f"{_VARIANT_FLAG}{kernel}"],
            "gencode": target.gencode,
            "toolchain": {"nvcc": toolchain.nvcc_version, "cxx": toolchain.cxx_version},
            "machine_code": {target.real_arch: build.code_hash},
        },
        "entry_points": {call: name_symbol(loaded.op.name, call, kernel) for call in CALLS},
        "interface": hash_value(interface),
        "domain": [c.to_json() for c in domain],
        "alignment_bytes": find_alignments(loaded, domain),
        "deterministic": kernel_spec.deterministic,
        "resources": list_resources(build.resources, kernel_spec.max_spill_bytes),
        **facts,
    }
    if loaded.op.accumulate is not None:
        manifest["accumulate"] = loaded.op.accumulate
    return manifest | {"seal": make_seal(manifest)}


def find_alignments(loaded: LoadedOp, domain: Sequence[Condition]) -> dict[str, int]:
    """Return by tensor what its address must be a multiple of, in bytes, where that is more than its element."""
    asked = {t.name: 1 for t in loaded.op.tensors}
    for condition in domain:
        if isinstance(condition, Rows):
            asked[condition.tensor] = max(asked[condition.tensor], condition.address_bytes)
    return {name: size for name, size in asked.items() if size > 1}


def list_resources(resources: Resources, max_spill_bytes: int) -> dict[str, int]:
    """Return ptxas' figures, with what may be spilled."""
    figures = {k: v for k, v in asdict(resources).items() if isinstance(v, int)}
    return figures | {"max_spill_bytes": max_spill_bytes}
