"""SASS of a built variant, through NVIDIA's disassemblers."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from device import UnavailableError
from device.cubin import read_machine_code
from device.toolchain import Toolchain
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
    kernels: list[SassKernel] = []
    for image in read_machine_code(library):
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(image)
            file.flush()
            kernels += parse_sass(_run([str(toolchain.nvdisasm), "-g", "-c", file.name]))
    return kernels


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)} failed:\n{done.stderr.strip()}")
    return done.stdout
