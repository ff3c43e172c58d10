"""Files of measured choices in ``profiles/selection``: times with the circumstances they were taken in."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from contract.files import write_atomically
from device import Device
from device.settings import find_project_root
from device.toolchain import find_toolchain
from harness.records.provenance import find_commit


def find_folder() -> Path:
    """Return the folder of the committed records."""
    return find_project_root() / "profiles" / "selection"


def name_gpu(name: str) -> str:
    """Return what files with times of a GPU begin with: ``h200`` of ``NVIDIA H200``, ``h100`` of ``NVIDIA H100 80GB HBM3``."""
    return re.sub(r"[^a-z0-9]+", "-", name.removeprefix("NVIDIA ").split(" ")[0].lower())


def make_times_document(
    device: Device, op: str, seed: int, asked: int, kernels: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return a record of times: ``asked`` problems were drawn, ``rows`` are those that were timed."""
    facts = {"device": device.properties.name, "driver": device.properties.driver_version, "toolchain": find_toolchain().identity}
    facts |= {"commit": find_commit(find_project_root()).sha, "command": " ".join(["python -m harness", *sys.argv[1:]])}
    return {"facts": facts, "op": op, "seed": seed, "asked": asked, "kernels": list(kernels), "rows": list(rows)}


def write_record(path: Path, document: Mapping[str, Any]) -> None:
    """Write a record, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(document, indent=1) + "\n")
