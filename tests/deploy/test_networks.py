"""Saved networks as C: what a folder must hold, and what is made of copies, constants, workspaces and chains."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from contract.kernels import FrozenKernel, read_kernel
from contract.layout import PACKAGED_DIR
from deploy.errors import DeployError
from deploy.networks import make_network_source, read_network
from device.toolchain import find_toolchain

ROOT = Path(__file__).resolve().parents[2]
CHAIN = "x0: T, x1: T -> y0: T; y0 = x0 * 3.0 + x1"


def find_engine() -> FrozenKernel:
    folder = PACKAGED_DIR / "elementwise"
    return read_kernel(folder, min(path.stem for path in (folder / "kernels").iterdir()))


def save_network(folder: Path, **changes: Any) -> Path:
    """Write a made-up network of a copy, a chain and a constant."""
    engine = find_engine()
    kernel = {"op": engine.op, "name": engine.name, "seal": engine.manifest["seal"], "chain": {"name": "chain", "text": CHAIN}}
    value = {"dtype": "float32", "shape": [4, 6], "region": "input", "offset": 0}
    launches = {
        "version": 1,
        "name": "net",
        "arch": "sm_90a",
        "sizes": {"state": 300, "constant": 256, "input": 96, "output": 96, "gradient": 0, "arena": 512},
        "inputs": [{"name": "x0"} | value],
        "outputs": [{"name": "y0"} | value | {"region": "output"}],
        "states": [{"name": "parameter:w", "dtype": "float32", "shape": [3], "region": "state", "offset": 256}],
        "constants": [{"offset": 8, "count": 5, "element": "0000803f"}],
        "steps": [
            {"op": "Copy", "copies": [[["arena", 256], ["input", 0], 96]]},
            {
                "op": "elementwise",
                "copies": [],
                "kernel": kernel,
                "params": "0102",
                "pointers": [[8, "arena", 256], [16, "constant", 8]],
                "workspace": None,
                "own_workspace_bytes": 1000,
            },
        ],
    }
    folder.mkdir()
    (folder / "launches.json").write_text(json.dumps(launches | changes))
    save_file({"parameter:w": np.array([1.0, 2.0, 3.0], np.float32)}, folder / "states.safetensors")
    return folder


def test_a_network_is_tables_with_offsets_of_one_block(tmp_path: Path) -> None:
    network = read_network(save_network(tmp_path / "net"), PACKAGED_DIR, tmp_path / "out")
    # Regions begin at multiples of 256 bytes: states, constants, inputs, outputs, gradients, the arena, and what a kernel wants beside it.
    assert dict(network.offsets) == {"state": 0, "constant": 512, "input": 768, "output": 1024, "gradient": 1280, "arena": 1280}
    assert (dict(network.workspaces), network.num_bytes) == ({1: 1792}, 2816)
    assert network.weights == bytes(256) + np.array([1.0, 2.0, 3.0], np.float32).tobytes() + bytes(32)
    text = make_network_source(network, tmp_path / "weights")
    assert "{1536, 768, 96}" in text  # the copy
    assert "{8, 1536}, {16, 520}" in text  # the addresses among the parameters
    assert "{520, 5, 4, {0, 0, 128, 63}}" in text  # five times 1.0
    assert ".has_workspace = 1, .workspace = 1792" in text
    assert ".major = 9,\n    .minor = 0,\n    .runs_on_later_minors = 0" in text


def test_a_chain_that_is_not_frozen_is_compiled_with_the_library(tmp_path: Path) -> None:
    save_network(tmp_path / "net")
    command = [sys.executable, "-m", "deploy", "--network", str(tmp_path / "net"), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("network net: 2 steps, 300 bytes of weights, 2816 bytes of device memory\n")
    kernels = (tmp_path / "out" / "kernels.cmake").read_text()
    (name,) = re.findall(r"AICF_FLAGS_elementwise-(chain__\w+) ", kernels)
    (header,) = (tmp_path / "out" / "chains").glob(".chains-*/elementwise/chains.hpp")
    (include,) = re.findall(r'AICF_FLAGS_elementwise-chain__\w+ "-I([^;]+);', kernels)
    assert Path(include) / "elementwise" / "chains.hpp" == header.resolve()
    source = tmp_path / "out" / "aicf_network_net.c"
    assert f"elementwise_launch__{name}" in source.read_text()
    # The C is what a strict compiler takes; the weights are read by the assembler.
    includes = [f"-I{path}" for path in (tmp_path / "out", ROOT / "deploy", find_toolchain().cuda_include)]
    for path in (source, ROOT / "deploy" / "network.c"):
        command = ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", *includes, "-c", str(path), "-o", str(tmp_path / "object.o")]
        subprocess.run(command, check=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, r"launches.json: is of version 2, and this is for version 1; save it again"),
        ({"states": [{"name": "parameter:v", "shape": [3], "offset": 0}]}, "states.safetensors: has no state parameter:v of shape"),
        ({"arch": "avx2"}, "net: architecture 'avx2' is unknown"),
    ],
)
def test_what_is_no_network_is_refused_by_name(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(DeployError, match=message):
        make_network_source(read_network(save_network(tmp_path / "net", **change), PACKAGED_DIR, tmp_path), tmp_path)


def test_damaged_files_and_names_that_c_cannot_have_are_refused(tmp_path: Path) -> None:
    folder = save_network(tmp_path / "net")
    states = folder / "states.safetensors"
    states.write_bytes(states.read_bytes()[:-4])
    with pytest.raises(DeployError, match="is cut short at parameter:w"):
        read_network(folder, PACKAGED_DIR, tmp_path)
    states.write_bytes(b"")
    with pytest.raises(DeployError, match=r"states\.safetensors: cannot be read"):
        read_network(folder, PACKAGED_DIR, tmp_path)
    with pytest.raises(DeployError, match="the folder's name becomes a name in C"):
        read_network(folder.rename(tmp_path / "My net"), PACKAGED_DIR, tmp_path)
    with pytest.raises(DeployError, match=r"program\.save"):
        read_network(tmp_path / "nothing", PACKAGED_DIR, tmp_path)
