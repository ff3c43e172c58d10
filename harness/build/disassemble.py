"""SASS of a built variant, through NVIDIA's disassemblers."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from device import UnavailableError
from device.cubin import read_machine_code
from device.toolchain import Toolchain
from harness.build.cubins import join_cubins
from harness.build.sass import SassKernel, parse_sass
from harness.errors import BuildError

_REMEDY = "is not installed; pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm"


def disassemble(library: Path, toolchain: Toolchain) -> str:
    """Return the SASS of every kernel in a shared object. Raises :class:`UnavailableError` where the disassembler is not installed."""
    if toolchain.cuobjdump is None:
        raise UnavailableError(f"cuobjdump {_REMEDY}")
    return _run([str(toolchain.cuobjdump), "--dump-sass", str(library)])


def read_sass(library: Path, toolchain: Toolchain) -> list[SassKernel]:
    """Return every kernel of a shared object with its instructions and their source lines; raises as :func:`disassemble` does."""
    if toolchain.nvdisasm is None:
        raise UnavailableError(f"nvdisasm {_REMEDY}")
    return read_sass_of([library], toolchain)[0]


def read_sass_of(libraries: Sequence[Path], toolchain: Toolchain) -> list[list[SassKernel]]:
    """Return the kernels of each shared object, as :func:`read_sass` does: several take hardly longer than one."""
    if toolchain.nvdisasm is None:
        raise UnavailableError(f"nvdisasm {_REMEDY}")
    images = [(index, image) for index, library in enumerate(libraries) for image in read_machine_code(library)]
    found: list[list[SassKernel]] = [[] for _ in libraries]
    if not images:
        return found
    prefixes = [f"image{number}." for number in range(len(images))]
    joined = images[0][1] if len(images) == 1 else join_cubins([image for _, image in images], prefixes)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(joined)
        file.flush()
        kernels = parse_sass(_run([str(toolchain.nvdisasm), "-g", "-c", file.name]))
    for kernel in kernels:
        if len(images) == 1:
            found[images[0][0]].append(kernel)
        else:
            prefix = kernel.name.split(".", 1)[0]
            found[images[int(prefix.removeprefix("image"))][0]].append(_strip(kernel, f"{prefix}."))
    return found


def _strip(kernel: SassKernel, prefix: str) -> SassKernel:
    """Return a kernel of a joined cubin with the names that it had."""
    instructions = tuple(replace(i, operands=i.operands.replace(prefix, "")) if prefix in i.operands else i for i in kernel.instructions)
    return replace(kernel, name=kernel.name.removeprefix(prefix), instructions=instructions)


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)} failed:\n{done.stderr.strip()}")
    return done.stdout
