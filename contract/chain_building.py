"""Kernels for chains that no op lists, compiled from a sealed engine: what the framework's fusion builds on the machine where it runs.

A frozen kernel of an op with chains is compiled once more with another ``chains.hpp`` before its sources, its other tunables as they are.
The sources are checked against their seal; the machine code is new, and is cached under the engine's seal and the chain. Its entry points
check a call against the chain's own operands, and use the op's Params: ``in0``, ``in1``, ..., ``out0``, ... in the order of the signature.

Where the emulated device runs it, a chain is built quicker: with PTX, which that device runs, and no machine code, which nothing pins as
a seal does a frozen kernel's; and with a launcher that is not optimised, since its kernels take far longer. A GPU finds none of these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from contract.building import find_or_build
from contract.errors import FrozenError
from contract.expressions.cuda import OWN, write_chains
from contract.expressions.tree import Chain
from contract.files import write_atomically
from contract.kernels import EMULATED_HOST_EFFORT, FrozenKernel
from contract.layout import name_symbol
from device.settings import read_settings
from device.toolchain import Toolchain

_NUMBER = re.compile(r"-DAICF_CHAIN=-?\d+\Z")
_EFFORT = re.compile(r"-O[1-3]\Z")


def build_chain(
    engine: FrozenKernel, chain: Chain, cache_dir: Path | None = None, *, is_emulated: bool = False
) -> tuple[FrozenKernel, Path]:
    """Return the kernel that computes ``chain`` as the engine computes its own, with its library, from the cache or built now.

    ``engine`` is any frozen kernel of an op with chains. What is returned has the entry points' names, and no seal; where it
    ``is_emulated``, only the emulated device runs it. Raises :class:`FrozenError` where the engine has no chain or a source is not what was
    sealed, :class:`BuildError` with the compiler's text, and :class:`UnavailableError` where there is no compiler.
    """
    root = (cache_dir or read_settings().cache_dir) / "frozen" / engine.op
    kernel, name = derive_kernel(engine, chain, root), f"{chain.name}-{_hash(engine, chain)}"
    if is_emulated:
        kernel, name = _make_emulated(kernel), f"{name}-emulated"
    return kernel, find_or_build(root / name, kernel, _accept)


def derive_kernel(engine: FrozenKernel, chain: Chain, root: Path) -> FrozenKernel:
    """Return the kernel of the engine's sources that computes ``chain``, with the header that it includes written below ``root``.

    Raises :class:`FrozenError` where the engine has no chain or a source is not what was sealed.
    """
    digest = _hash(engine, chain)
    header = root / f".chains-{digest}" / engine.op / "chains.hpp"
    kernel = _derive(engine, f"{chain.name}__{digest[:8]}", header.parents[1])
    engine.check_sources()
    _write_header(header, write_chains(engine.op, {OWN: chain}))
    return kernel


def _hash(engine: FrozenKernel, chain: Chain) -> str:
    return sha256(f"{engine.manifest['seal']}\0{chain.name}\0{chain.key}".encode()).hexdigest()[:16]


def specialise(interface: Mapping[str, Any], chain: Chain) -> dict[str, Any]:
    """Return the index's ``interface`` of an op with chains as a chain of one's own has it: its operands, and its number."""
    inputs, outputs = ([word for o in operands for word in o.words] for operands in (chain.inputs, chain.outputs))
    tensors = {f"in{i}": word for i, word in enumerate(inputs)} | {f"out{i}": word for i, word in enumerate(outputs)}
    rows = []
    for tensor in interface["tensors"]:
        operand = tensors.get(tensor["name"])
        is_there = operand is not None or (tensor["name"] == "counter" and chain.num_draws > 0)
        row = dict(tensor) | {"present": [{"when": {}, "value": is_there}]}
        if operand is not None:
            dtypes = _list_dtypes(interface) if operand.type == "T" else [""]
            row["dtype"] = [{"when": {"dtype": d} if d else {}, "value": operand.find_dtype(d)} for d in dtypes]
            row["shape"] = [{"when": {}, "value": list(operand.shape)}]
        rows.append(row)
    attributes = [
        dict(a) | {"choices": [chain.name], "codes": [OWN], "default": chain.name} if a["name"] == "chain" else dict(a)
        for a in interface["attributes"]
    ]
    return dict(interface) | {"tensors": rows, "attributes": attributes}


def _list_dtypes(interface: Mapping[str, Any]) -> list[str]:
    return [str(choice) for a in interface["attributes"] if a["name"] == "dtype" for choice in a["choices"]]


def _derive(engine: FrozenKernel, name: str, include: Path) -> FrozenKernel:
    """Return a kernel of the engine's sources that finds its chain in ``include`` and bears another name."""
    manifest = dict(engine.manifest)
    build = dict(manifest["build"])
    if not any(_NUMBER.match(flag) for flag in build["flags"]):
        raise FrozenError(
            f"{engine.op}/{engine.name}: is not made for a chain, and cannot compute another; give a kernel of op elementwise"
        )
    dropped = ("-DAICF_CHAIN=", "-DAICF_VARIANT=", "-DAICF_DOMAIN=")
    kept = [flag for flag in build["flags"] if not flag.startswith(dropped)]
    # What the engine's domain says of sizes holds for every chain; that it serves one chain alone does not.
    domain = next((flag for flag in build["flags"] if flag.startswith("-DAICF_DOMAIN=")), "-DAICF_DOMAIN=D")
    sizes = "".join(re.findall(r"_C(?:_\d+)+", domain))
    build["flags"] = [f"-I{include.resolve()}", *kept, f"-DAICF_CHAIN={OWN}", f"-DAICF_VARIANT={name}", f"-DAICF_DOMAIN=D{sizes}"]
    manifest |= {"kernel": name, "variant": name, "build": build, "seal": ""}
    manifest["entry_points"] = {call: name_symbol(engine.op, call, name) for call in manifest["entry_points"]}
    return replace(engine, manifest=manifest)


def _make_emulated(kernel: FrozenKernel) -> FrozenKernel:
    """Return a kernel as only the emulated device runs it: PTX without ptxas, and a launcher that g++ does not optimise.

    The PTX is the same with any effort, which is the host's alone (:data:`contract.kernels.HOST_EFFORT`).
    """
    build = dict(kernel.manifest["build"])
    virtual = build["gencode"].partition("arch=")[2].partition(",")[0]
    build["gencode"] = f"arch={virtual},code=[{virtual}]"
    build["flags"] = [EMULATED_HOST_EFFORT if _EFFORT.match(flag) else flag for flag in build["flags"]]
    return replace(kernel, manifest=dict(kernel.manifest) | {"build": build})


def _write_header(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_file() and path.read_text() == text:
        return
    write_atomically(path, text)


def _accept(kernel: FrozenKernel, toolchain: Toolchain, library: Path) -> None:
    """Nobody has sealed this code: what is checked against a seal are the sources."""
