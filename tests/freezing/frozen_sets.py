"""A frozen set of a made-up op, written as promote writes one, without a compiler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from contract.layout import (
    KERNELS,
    SCHEMA_VERSION,
    TREE,
    dump_document,
    expand,
    hash_bytes,
    hash_value,
    list_kernel_files,
    make_seal,
    name_revision,
    split,
)
from harness.freezing.store.changes import change_index
from harness.freezing.store.history import name_evidence
from harness.freezing.store.transaction import Disk

OP = "tiny"


class QuickDisk(Disk):
    """Waits for no disk."""

    def write(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)

    def settle(self, folder: Path) -> None:
        pass


def make_tensor_row(name: str, role: str, shape: list[str], stride: str | None = None) -> dict[str, Any]:
    """Return a tensor of an interface, which is always there."""
    return {
        "name": name,
        "role": role,
        "field": name,
        "stride": stride,
        "dtype": [{"when": {}, "value": "float32"}],
        "shape": [{"when": {}, "value": shape}],
        "present": [{"when": {}, "value": True}],
    }


SOURCES = {
    "sources/common/twice.cuh": b"inline float twice(float x) { return x + x; }\n",
    "sources/tiny/launcher.cu": b'#include "common/twice.cuh"\n',
    "sources/tiny/op.py": b"OP = None\n",
}
REVISION = name_revision(hash_value({"schema": 1, "op": OP, "files": {n: hash_bytes(c) for n, c in SOURCES.items()}}))
INTERFACE: dict[str, Any] = {
    "include": "tiny/api.hpp",
    "struct": "TinyParams",
    "fields": [{"name": "x", "type": "pointer"}, {"name": "y", "type": "pointer"}, {"name": "n", "type": "int64"}],
    "sizes": {"n": "n"},
    "attributes": [],
    "tensors": [make_tensor_row(name, role, ["n"]) for name, role in (("x", "input"), ("y", "output"))],
}
DESCRIPTION: dict[str, Any] = {
    "kind": "op",
    "schema": SCHEMA_VERSION,
    "op": OP,
    "interface": INTERFACE,
    "axes": [{"name": "region", "classes": [{"name": "short", "when": [{"count": {"n": 1}, "max": 64}]}, {"name": "long", "when": []}]}],
    "cost": None,
}


def make_bucket(region: str = "short") -> dict[str, str]:
    return {"arch": "sm_90a", "dtypes": "any", "layout": "any", "epilogue": "any", "region": region}


def make_manifest(kernel: str, sources: dict[str, bytes] | None = None) -> dict[str, Any]:
    manifest: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "op": OP,
        "kernel": kernel,
        "variant": "plain/threads32",
        "arch": "sm_90a",
        "files": {name: hash_bytes(content) for name, content in (sources or SOURCES).items()},
        "build": {
            "source": "sources/tiny/launcher.cu",
            "flags": ["-O3", f"-DAICF_VARIANT={kernel}"],
            "gencode": "arch=compute_90a,code=[sm_90a,compute_90a]",
            "toolchain": {"nvcc": "13.0.88", "cxx": "g++ 12"},
            "machine_code": {"sm_90a": "0" * 64},
        },
        "entry_points": {call: f"tiny_{call}__{kernel}" for call in ("supports", "workspace_bytes", "launch")},
        "interface": hash_value(INTERFACE),
        "domain": [{"count": {"n": 1}, "max": 1000}, {"tensor": "x", "address": 16}],
        "workspace": {"kind": "none", "max_bytes": 0},
        "alignment_bytes": {"x": 16},
        "deterministic": True,
        "capture_safe": True,
        "tolerance": {"rule": "sources/tiny/op.py: tolerance()", "worst_error_ratio": 0.25, "worst_ulp": 1.0},
        "resources": {
            **dict.fromkeys(("registers", "shared_bytes", "stack_bytes", "spill_store_bytes", "spill_load_bytes", "barriers"), 8),
            "max_spill_bytes": 0,
        },
        "prior": {"tile": {"n": 32}, "slots": 132, "flops_per_s": {"fp32": 66.9e12}, "bytes_per_s": 4.8e12},
        "verified": {
            "record": "f" * 32,
            "protocol": 1,
            "problems": 3,
            "checks": ["result", "sanitizer"],
            "sanitized_by": "emulated device, 3 problems",
            "device": "Emulated sm_90a (CPU)",
            "commit": "c" * 40,
        },
    }
    return manifest | {"seal": make_seal(manifest)}


def make_rows(
    kernel: str, region: str = "short", reason: str = "because", sources: dict[str, bytes] | None = None
) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """Return the rows and files by which a kernel takes a bucket."""
    manifest = make_manifest(kernel, sources)
    evidence: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "op": OP,
        "bucket": make_bucket(region),
        "kernel": kernel,
        "incumbent": None,
        "status": "provisional",
        "reason": reason,
        "conditions": {"device": "d", "driver": 1, "toolchain": "t", "commit": "c", "host": "h", "command": "promote tiny"},
        "gates": [{"name": "verified", "passed": True, "detail": "3 problems"}],
        "contests": [],
    }
    content = dump_document(evidence).encode()
    entry = {
        "kind": "entry",
        "bucket": make_bucket(region),
        "role": "winner",
        "kernel": kernel,
        "seal": manifest["seal"],
        "status": "provisional",
        "evidence": {"file": name_evidence(evidence), "sha256": hash_bytes(content)},
        "at": "2026-01-01T00:00:00+00:00",
    }
    return [DESCRIPTION, entry], list_kernel_files(manifest, sources or SOURCES) | {name_evidence(evidence): content}


def make_median(kernel: str, n: int, median_us: float) -> dict[str, Any]:
    return {
        "kind": "median",
        "arch": "sm_90a",
        "device": "NVIDIA H200",
        "kernel": kernel,
        "problem": f"n{n}",
        "sizes": {"n": n},
        "attributes": {},
        "group": "any/any/any",
        "mode": "cold",
        "median_us": median_us,
        "record": "e" * 32,
    }


def write_frozen_set(root: Path) -> Path:
    """Write two kernels, one a bucket, by two events; return the frozen folder."""
    frozen_dir = root / "frozen"
    for kernel, region in (("plain__threads32__00000001", "short"), ("plain__threads64__00000002", "long")):
        rows, files = make_rows(kernel, region)
        rows.append(make_median(kernel, 64, 2.5))
        change_index(frozen_dir, OP, "promote", f"{kernel} takes {region}", put=rows, files=files, disk=QuickDisk())
    return frozen_dir


def write_manifest(frozen_dir: Path, manifest: dict[str, Any], kernel: str) -> None:
    """Write a kernel's manifest, given as it is on the disk, sealed anew."""
    folder = frozen_dir / OP
    tree = json.loads((folder / name_revision(manifest["revision"]) / TREE).read_text())
    sealed = expand(manifest, tree)
    sealed["seal"] = make_seal(sealed)
    (folder / KERNELS / f"{kernel}.json").write_text(dump_document(split(sealed)[0]))


def read_everything(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder, those of locks and journals too."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
