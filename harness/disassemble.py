"""SASS of a built variant, through NVIDIA's disassembler."""

from __future__ import annotations

import subprocess
from pathlib import Path

from device import UnavailableError
from harness.errors import BuildError
from harness.toolchain import Toolchain


def disassemble(library: Path, toolchain: Toolchain) -> str:
    """Return the SASS of every kernel in a shared object. Raises :class:`UnavailableError` where the disassembler is not installed."""
    if toolchain.cuobjdump is None:
        raise UnavailableError("cuobjdump is not installed; pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm")
    command = [str(toolchain.cuobjdump), "--dump-sass", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)} failed:\n{done.stderr.strip()}")
    return done.stdout
