"""``python -m deploy``: writes what CMake compiles (header, dispatcher, the list of kernels with their flags) and a summary of it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from contract.errors import FrozenError
from deploy.dispatch import make_dispatcher
from deploy.header import make_header
from deploy.selection import DeployedOp, select


def list_kernels(ops: Sequence[DeployedOp]) -> str:
    """Return the text of ``kernels.cmake``: for each kernel its source, flags, include folder, inputs and the symbols that stay visible."""
    lines = [f"set(AICF_KERNEL_NAMES {' '.join(f'{op.name}-{k.name}' for op in ops for k in op.kernels)})"]
    for op in ops:
        for kernel in op.kernels:
            build, key = kernel.manifest["build"], f"{op.name}-{kernel.name}"
            folder = kernel.folder.resolve()
            inputs = ";".join(str(folder / name) for name in kernel.manifest["files"])
            lines += [
                f'set(AICF_SOURCE_{key} "{kernel.source}")',
                f'set(AICF_FLAGS_{key} "{";".join(kernel.flags)}")',
                f'set(AICF_INPUTS_{key} "{inputs}")',
                f'set(AICF_SYMBOLS_{key} "{";".join(kernel.manifest["entry_points"].values())}")',
                f'set(AICF_NVCC_VERSION_{key} "{build["toolchain"]["nvcc"]}")',
            ]
    return "\n".join(lines) + "\n"


def summarize(ops: Sequence[DeployedOp]) -> str:
    """Return what the library has: a line per op, and one of all."""
    lines = [
        f"{op.name}: {_count(len(op.kernels), 'kernel')} for {', '.join(op.archs)}, {len(op.entries)} entries, {len(op.medians)} medians"
        for op in ops
    ]
    total = f"{_count(len(ops), 'op')}, {_count(sum(len(op.kernels) for op in ops), 'kernel')}"
    return "\n".join([*lines, total]) + "\n"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def write(folder: Path, ops: Sequence[DeployedOp]) -> None:
    """Write the files; one whose text is the same keeps its time, so that nothing is compiled anew for it."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"aicf_kernels.h": make_header(ops), "aicf_dispatch.c": make_dispatcher(ops), "kernels.cmake": list_kernels(ops)}
    texts["summary.txt"] = summarize(ops)
    for name, text in texts.items():
        path = folder / name
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)


def main() -> int:
    """Run what the command line asks for; 0 when done, 1 where the frozen set does not give it."""
    parser = argparse.ArgumentParser(prog="python -m deploy", description=__doc__)
    parser.add_argument("--frozen", type=Path, default=Path(__file__).resolve().parents[1] / "frozen", help="the frozen set")
    parser.add_argument("--out", type=Path, required=True, help="where the files go")
    parser.add_argument("--op", action="append", default=[], help="an op; all where none is given; repeatable")
    parser.add_argument("--arch", action="append", default=[], help="an architecture, sm_90a; all where none is given; repeatable")
    parser.add_argument("--kernel", action="append", default=[], help="a pattern of kernel names; all where none is given; repeatable")
    arguments = parser.parse_args()
    try:
        ops = select(arguments.frozen, arguments.op, arguments.arch, arguments.kernel)
        write(arguments.out, ops)
    except (FrozenError, OSError) as error:
        print(f"deploy: {error}", file=sys.stderr)
        return 1
    print(summarize(ops), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
