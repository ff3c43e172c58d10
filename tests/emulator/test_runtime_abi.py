"""The layouts in cuda_abi.hpp and texture_abi.hpp against the toolkit's own headers, by the compiler."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from device.loader import find_cuda_library

from .cuda_runtime import ROOT

RUNTIME = ROOT / "device/emulator/src/runtime"
ABI_HEADERS = [RUNTIME / name for name in ("cuda_abi.hpp", "texture_abi.hpp")]

# Ours, CUDA's, and the fields whose offsets are compared (all that are named alike).
STRUCTS = {
    "DeviceProp": "cudaDeviceProp",
    "FuncAttributes": "cudaFuncAttributes",
    "PointerAttributes": "cudaPointerAttributes",
    "PitchedPtr": "cudaPitchedPtr",
    "Extent": "cudaExtent",
    "Pos": "cudaPos",
    "Memcpy3DParms": "cudaMemcpy3DParms",
    "Memcpy3DPeerParms": "cudaMemcpy3DPeerParms",
    "MemcpyNodeParams": "cudaMemcpyNodeParams",
    "MemsetParams": "cudaMemsetParams",
    "HostNodeParams": "cudaHostNodeParams",
    "MemLocation": "cudaMemLocation",
    "MemAccessDesc": "cudaMemAccessDesc",
    "MemPoolProps": "cudaMemPoolProps",
    "MemAllocNodeParams": "cudaMemAllocNodeParams",
    "KernelNodeParams": "cudaKernelNodeParams",
    "ChildGraphNodeParams": "cudaChildGraphNodeParams",
    "ConditionalNodeParams": "cudaConditionalNodeParams",
    "GraphEdgeData": "cudaGraphEdgeData",
    "GraphInstantiateParams": "cudaGraphInstantiateParams",
    "GraphExecUpdateResultInfo": "cudaGraphExecUpdateResultInfo",
    "LaunchAttribute": "cudaLaunchAttribute",
    "LaunchConfig": "cudaLaunchConfig_t",
    "ChannelFormatDesc": "cudaChannelFormatDesc",
    "TextureDesc": "cudaTextureDesc",
    "ResourceViewDesc": "cudaResourceViewDesc",
}
SIZES_ONLY = {
    "GraphNodeParams": "cudaGraphNodeParams",
    "LaunchAttributeValue": "cudaLaunchAttributeValue",
    "IpcHandle": "cudaIpcMemHandle_t",
    "ResourceDesc": "cudaResourceDesc",
}


def fields_of(struct: str) -> list[str]:
    """Names of the fields that a struct of our headers declares."""
    lines = "".join(header.read_text() for header in ABI_HEADERS).split(f"struct {struct} {{")[1].split("\n};")[0].splitlines()
    names: list[str] = []
    for line in lines:
        declaration = line.split("//")[0].strip()
        if not declaration.endswith(";"):
            continue
        first, *others = declaration.rstrip(";").split(",")
        names += [part.split()[-1].split("[")[0].lstrip("*") for part in (first, *others)]
    return [name for name in names if name != "reserved"]  # room that later releases use


@pytest.fixture(scope="module")
def include() -> Path:
    library = find_cuda_library()
    assert library is not None, "nvidia-cuda-runtime is a dependency of the project"
    found = library.parents[1] / "include"
    assert (found / "driver_types.h").is_file()
    if not (found / "crt" / "host_defines.h").is_file():
        pytest.skip(f"the headers in {found} are not whole: pip install nvidia-cuda-crt")
    return found


def compile_checks(include: Path, folder: Path, checks: list[str]) -> None:
    source = folder / "checks.cpp"
    lines = [
        "#include <cstddef>",
        *(f'#include "{header}"' for header in ABI_HEADERS),
        "#include <cuda_runtime_api.h>",
        "using namespace aicf::emu;",
        *checks,
    ]
    source.write_text("\n".join(lines) + "\n")
    command = [
        "g++",
        "-std=c++20",
        "-fsyntax-only",
        "-Wno-invalid-offsetof",
        "-Wno-deprecated-declarations",
        f"-isystem{include}",
        str(source),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]


def test_layouts_are_cudas(include: Path, tmp_path: Path) -> None:
    checks = []
    for ours, theirs in {**STRUCTS, **SIZES_ONLY}.items():
        checks.append(f'static_assert(sizeof(abi::{ours}) == sizeof({theirs}), "size of {ours}");')
        checks.append(f'static_assert(alignof(abi::{ours}) == alignof({theirs}), "alignment of {ours}");')
    num_fields = 0
    for ours, theirs in STRUCTS.items():
        for name in fields_of(ours):
            num_fields += 1
            checks.append(f'static_assert(offsetof(abi::{ours}, {name}) == offsetof({theirs}, {name}), "{ours}.{name}");')
            checks.append(f'static_assert(sizeof(abi::{ours}::{name}) == sizeof({theirs}::{name}), "size of {ours}.{name}");')
    assert num_fields > 200
    compile_checks(include, tmp_path, checks)


def test_values_are_cudas(include: Path, tmp_path: Path) -> None:
    pairs = {
        "abi::kFuncMaxDynamicSharedMemorySize": "cudaFuncAttributeMaxDynamicSharedMemorySize",
        "abi::kFuncNonPortableClusterSizeAllowed": "cudaFuncAttributeNonPortableClusterSizeAllowed",
        "abi::kFuncClusterSchedulingPolicyPreference": "cudaFuncAttributeClusterSchedulingPolicyPreference",
        "abi::kMemoryManaged": "cudaMemoryTypeManaged",
        "abi::kCopyDefault": "cudaMemcpyDefault",
        "abi::kCaptureInvalidated": "cudaStreamCaptureStatusInvalidated",
        "abi::kCaptureRelaxed": "cudaStreamCaptureModeRelaxed",
        "abi::kNodeWaitEvent": "cudaGraphNodeTypeWaitEvent",
        "abi::kNodeEventRecord": "cudaGraphNodeTypeEventRecord",
        "abi::kNodeMemFree": "cudaGraphNodeTypeMemFree",
        "abi::kNodeConditional": "cudaGraphNodeTypeConditional",
        "abi::kInstantiatePriority": "cudaGraphInstantiateFlagUseNodePriority",
        "abi::kUpdateAttributesChanged": "cudaGraphExecUpdateErrorAttributesChanged",
        "abi::kUpdateTopologyChanged": "cudaGraphExecUpdateErrorTopologyChanged",
        "abi::kAttributeClusterDimension": "cudaLaunchAttributeClusterDimension",
        "abi::kAttributeNvlinkScheduling": "cudaLaunchAttributeNvlinkUtilCentricScheduling",
    }
    compile_checks(include, tmp_path, [f'static_assert(int({ours}) == int({theirs}), "{ours}");' for ours, theirs in pairs.items()])


def test_our_functions_have_cudas_signatures(include: Path, tmp_path: Path) -> None:
    """Each exported function is defined with as many parameters, of the same sizes, as CUDA declares."""
    sources = "\n".join(path.read_text() for path in [*sorted(RUNTIME.glob("*_api.cpp")), RUNTIME / "capture.cpp"])
    body = "{ unsigned long n = 0; ((n = n * 31 + sizeof(A)), ...); return n; }"
    checks = [f"template <class... A> constexpr unsigned long bytes(cudaError_t (*)(A...)) {body}"]
    checks.append(f"template <class... A> constexpr unsigned long ours(int (*)(A...)) {body}")
    checks.append("namespace mine {")
    names = []
    declared = (include / "cuda_runtime_api.h").read_text()
    for name, parameters in _definitions(sources):
        if name.startswith("cuda") and f" {name}(" in declared and "CUDART_CB" not in parameters:
            names.append(name)
            checks.append(f"int {name}({parameters});")
    checks.append("}")
    assert len(names) > 180
    checks += [
        f'static_assert(bytes(static_cast<decltype(&::{n})>(nullptr)) == ours(static_cast<decltype(&mine::{n})>(nullptr)), "{n}");'
        for n in names
    ]
    compile_checks(include, tmp_path, checks)


def _definitions(sources: str) -> list[tuple[str, str]]:
    """Names and parameter lists of the API functions that the sources define."""
    plain = re.findall(r"^AICF_API (\w+)\(([^{]*?)\) \{", sources, re.MULTILINE)
    twins = re.findall(r"^AICF_TWIN_API\((\w+), \w+,\s*\((.*?)\),\s*\(", sources, re.MULTILINE | re.DOTALL)
    return plain + twins
