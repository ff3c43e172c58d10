"""A stand-in for cuBLASLt, compiled from ``fake_cublaslt.c``: opened through the project's own binding, on whatever device is open."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aicf.kernels.external import LibraryKernel, match_library
from aicf.registry import HwCaps, Problem, Registry
from contract.layout import hash_value
from contract.libraries.adapters import ADAPTERS, CUBLASLT
from contract.libraries.binding import Binding, build_binding
from device.native import build_library

OP = "gemm_bias_act"
VERSION = 130002
ADAPTER = ADAPTERS[CUBLASLT, OP]
HOPPER = HwCaps(9, 0)


def build_fake(folder: Path, version: int = VERSION) -> Path:
    """Return the stand-in, which says that it is of a version."""
    flags = ("-x", "c", f"-DFAKE_VERSION={version}")
    return build_library("libfake_cublaslt.so", Path(__file__).with_name("fake_cublaslt.c"), flags, cache_dir=folder)


def copy_binding(path: Path) -> Path:
    """Return a copy of the compiled binding that has nothing open: one opens a single library in a process."""
    return Path(shutil.copy(build_binding(), path))


def open_fake(folder: Path, version: int = VERSION) -> Binding:
    """Return the binding with the stand-in opened."""
    return Binding(str(build_fake(folder, version)), copy_binding(folder / f"binding_{version}.so"))


@dataclass(frozen=True)
class FakeLibraries:
    """Finds the stand-in, also on the emulated device."""

    opener: Callable[[], Binding]

    def find(self, op: str, row: Mapping[str, Any], interface: Mapping[str, Any]) -> LibraryKernel | str:
        """Return the library of a row, or why it cannot be used."""
        return match_library(op, row, interface, self.opener)


def make_row(*points: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a library's row of the index with measured points."""
    interface = Registry().read(OP).frozen.interface
    row: dict[str, Any] = {
        "kind": "library",
        "arch": "sm_90a",
        "library": CUBLASLT,
        "version": VERSION,
        "device": "NVIDIA H200",
        "interface": hash_value(interface),
        "domain": [dict(c) for c in ADAPTER.domain],
        "alignment_bytes": dict(ADAPTER.alignment_bytes),
        "workspace_bytes": 4096,
        "deterministic": True,
        "capture_safe": True,
        "accumulate": "float32",
        "record": "drawn.json (0123456789abcdef)",
        "points": list(points),
    }
    return row | changes


def make_point(sizes: Mapping[str, int], attributes: Mapping[str, Any], ratio: float | None) -> dict[str, Any]:
    """Return a measured point: the library took ``ratio`` of the time of the kernel that is chosen there now; None if it was wrong."""
    own = Registry().select(OP, Problem(sizes, attributes), HOPPER)
    return {
        "problem": "_".join(f"{name}{size}" for name, size in sizes.items()),
        "sizes": dict(sizes),
        "attributes": dict(attributes),
        "median_us": None if ratio is None else 10.0 * ratio,
        "error": 2.5 if ratio is None else 0.5,
        "kernel": own.kernel,
        "kernel_us": 10.0,
    }
