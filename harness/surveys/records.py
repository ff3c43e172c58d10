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
from harness.records.provenance import describe_environment, find_commit


def find_folder() -> Path:
    """Return the folder of the committed records."""
    return find_project_root() / "profiles" / "selection"


def name_gpu(name: str) -> str:
    """Return what files with times of a GPU begin with: ``h200`` of ``NVIDIA H200``, ``h100`` of ``NVIDIA H100 80GB HBM3``."""
    return re.sub(r"[^a-z0-9]+", "-", name.removeprefix("NVIDIA ").split(" ")[0].lower())


def make_times_document(
    device: Device,
    op: str,
    seed: int,
    asked: int,
    kernels: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    code_hashes: Mapping[str, str],
) -> dict[str, Any]:
    """Return a record of times: ``asked`` problems were drawn, ``rows`` are those that were timed.

    ``code_hashes`` are those of the machine code of variants that were timed beside the frozen kernels.
    """
    place = describe_environment(device, find_toolchain().identity, "")
    commit = find_commit(find_project_root())
    facts = {"device": place.device_name, "driver": place.driver_version, "toolchain": place.toolchain, "host": place.host}
    facts |= {"commit": commit.sha, "dirty": commit.dirty, "command": " ".join(["python -m harness", *sys.argv[1:]])}
    document = {"facts": facts, "op": op, "seed": seed, "asked": asked, "kernels": list(kernels), "rows": list(rows)}
    return document | ({"code_hashes": dict(code_hashes)} if code_hashes else {})


def write_record(path: Path, document: Mapping[str, Any]) -> None:
    """Write a record, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(document, indent=1) + "\n")
