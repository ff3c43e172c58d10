"""``python -m deploy``: writes what CMake compiles (header, dispatcher, the list of kernels with their flags) and a summary of it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from contract.errors import FrozenError
from contract.kernels import WITHOUT_LARGE_HEADERS, FrozenKernel
from deploy.dispatch import make_dispatcher
from deploy.header import make_header
from deploy.networks import Network, make_network_header, make_network_source, read_network
from deploy.selection import DeployedOp, select


def list_kernels(ops: Sequence[DeployedOp], networks: Sequence[Network] = ()) -> str:
    """Return the text of ``kernels.cmake``: for each kernel its source, flags, include folder, inputs and the symbols that stay visible."""
    kernels = {f"{kernel.op}-{kernel.name}": kernel for kernel in _list_all(ops, networks)}
    lines = [f"set(AICF_KERNEL_NAMES {' '.join(kernels)})", f"set(AICF_NETWORK_NAMES {' '.join(n.name for n in networks)})"]
    lines.append(f'set(AICF_WITHOUT_LARGE_HEADERS "{" ".join(WITHOUT_LARGE_HEADERS)}")')
    for key, kernel in kernels.items():
        build, folder = kernel.manifest["build"], kernel.folder.resolve()
        inputs = ";".join(str(folder / name) for name in kernel.manifest["files"])
        lines += [
            f'set(AICF_SOURCE_{key} "{kernel.source}")',
            f'set(AICF_FLAGS_{key} "{";".join(kernel.flags)}")',
            f'set(AICF_INPUTS_{key} "{inputs}")',
            f'set(AICF_SYMBOLS_{key} "{";".join(kernel.manifest["entry_points"].values())}")',
            f'set(AICF_NVCC_VERSION_{key} "{build["toolchain"]["nvcc"]}")',
        ]
    return "\n".join(lines) + "\n"


def _list_all(ops: Sequence[DeployedOp], networks: Sequence[Network]) -> Iterator[FrozenKernel]:
    for op in ops:
        yield from op.kernels
    for network in networks:
        yield from (kernel for kernel in network.kernels if kernel is not None)


def summarize(ops: Sequence[DeployedOp], networks: Sequence[Network] = ()) -> str:
    """Return what the library has: a line per network and op, and one of all."""
    lines = [
        f"{op.name}: {_count(len(op.kernels), 'kernel')} for {', '.join(op.archs)}, {len(op.entries)} entries, {len(op.medians)} medians"
        for op in ops
    ]
    lines[:0] = [
        f"network {n.name}: {_count(len(n.kernels), 'step')}, {len(n.weights)} bytes of weights, {n.num_bytes} bytes of device memory"
        for n in networks
    ]
    total = f"{_count(len(ops), 'op')}, {_count(len({(k.op, k.name) for k in _list_all(ops, networks)}), 'kernel')}"
    return "\n".join([*lines, total]) + "\n"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def write(folder: Path, ops: Sequence[DeployedOp], networks: Sequence[Network] = ()) -> None:
    """Write the files; one whose content is the same keeps its time, so that nothing is compiled anew for it."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"aicf_kernels.h": make_header(ops), "aicf_dispatch.c": make_dispatcher(ops), "kernels.cmake": list_kernels(ops, networks)}
    texts["summary.txt"] = summarize(ops, networks)
    contents = {name: text.encode() for name, text in texts.items()}
    for network in networks:
        stem = f"aicf_network_{network.name}"
        contents[f"{stem}.weights"] = network.weights
        contents[f"{stem}.h"] = make_network_header(network).encode()
        contents[f"{stem}.c"] = make_network_source(network, (folder / f"{stem}.weights").resolve()).encode()
    for name, content in contents.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != content:
            path.write_bytes(content)


def choose(arguments: argparse.Namespace) -> tuple[list[DeployedOp], list[Network]]:
    """Return the ops and networks that are asked for: networks alone bring their own kernels and no others."""
    networks = [read_network(path, arguments.frozen, arguments.out) for path in arguments.network]
    if not networks or arguments.op or arguments.arch or arguments.kernel:
        return select(arguments.frozen, arguments.op, arguments.arch, arguments.kernel), networks
    steps = [step["kernel"] for network in networks for step in network.launches["steps"] if "kernel" in step]
    own = [row for row in steps if row["chain"] is None] or steps
    return select(arguments.frozen, sorted({row["op"] for row in own}), [], sorted({row["name"] for row in own})), networks


def main() -> int:
    """Run what the command line asks for; 0 when done, 1 where the frozen set does not give it."""
    parser = argparse.ArgumentParser(prog="python -m deploy", description=__doc__)
    parser.add_argument("--frozen", type=Path, default=Path(__file__).resolve().parents[1] / "frozen", help="the frozen set")
    parser.add_argument("--out", type=Path, required=True, help="where the files go")
    parser.add_argument("--op", action="append", default=[], help="an op; default: all; repeatable")
    parser.add_argument("--arch", action="append", default=[], help="an architecture such as sm_90a; default: all; repeatable")
    parser.add_argument("--kernel", action="append", default=[], help="a pattern of kernel names; default: all; repeatable")
    parser.add_argument("--network", action="append", default=[], type=Path, help="a folder that program.save() wrote; repeatable")
    arguments = parser.parse_args()
    try:
        ops, networks = choose(arguments)
        write(arguments.out, ops, networks)
    except (FrozenError, OSError) as error:
        print(f"deploy: {error}", file=sys.stderr)
        return 1
    print(summarize(ops, networks), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
