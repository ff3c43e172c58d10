"""Build frozen kernels into libaicf_kernels.a, with a C header, a CMake package and a pkg-config file; programs link it without Python.

The kernels come from the project's own frozen set or, with --packaged, from the set that ships with AICF.

\b
Examples:
  python -m harness deploy
  python -m harness deploy scale_shift --prefix /opt/kernels
  python -m harness deploy softmax --packaged --arch sm_90a --shared
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from contract.frozen_set import list_ops
from contract.layout import PACKAGED_DIR, find_frozen_dir
from device import UnavailableError
from device.settings import PARTS_DIR, find_project_root
from device.toolchain import find_toolchain
from harness.commands.options import AsJson
from harness.errors import BuildError, ExitCode, UseError
from harness.terminal.console import print_json

Ops = Annotated[list[str] | None, typer.Argument(metavar="[OP...]", help="ops of the library; all frozen ops by default")]
Prefix = Annotated[Path, typer.Option("--prefix", metavar="DIR", file_okay=False, help="where lib/ and include/ go")]
Archs = Annotated[list[str] | None, typer.Option("--arch", metavar="sm_90a", help="only kernels for this architecture; repeatable")]
Kernels = Annotated[list[str] | None, typer.Option("--kernel", metavar="PATTERN", help="only kernels with matching names; repeatable")]
IsShared = Annotated[bool, typer.Option("--shared", help="also build libaicf_kernels.so")]
IsPackaged = Annotated[bool, typer.Option("--packaged", help="from the frozen set that ships with AICF, not the project's own")]


def run(
    ops: Ops = None,
    prefix: Prefix = Path("build", "prefix"),
    arch: Archs = None,
    kernel: Kernels = None,
    shared: IsShared = False,
    packaged: IsPackaged = False,
    json: AsJson = False,
) -> ExitCode:
    """Run the verb."""
    toolchain, cmake = find_toolchain(), _find_tool("cmake")
    frozen = PACKAGED_DIR if packaged else find_frozen_dir()
    known = list_ops(frozen)
    if unknown := sorted(set(ops or ()) - set(known)):
        raise UseError(f"{unknown[0]!r} is not frozen in {frozen}; there are: {', '.join(known) or 'none'}")
    build = find_project_root() / "build" / f"deploy{'-packaged' if packaged else ''}"
    values = {
        "CMAKE_INSTALL_PREFIX": str(prefix.absolute()),
        "CMAKE_MAKE_PROGRAM": _find_tool("ninja"),
        "Python3_EXECUTABLE": sys.executable,
        "AICF_NVCC": str(toolchain.nvcc),
        "AICF_FROZEN": str(frozen),
        "AICF_OPS": ";".join(ops or []),
        "AICF_ARCHS": ";".join(arch or []),
        "AICF_KERNELS": ";".join(kernel or []),
        "AICF_SHARED": "ON" if shared else "OFF",
    }
    words = [f"-D{name}={value}" for name, value in values.items()]
    _call([cmake, "-S", str(PARTS_DIR / "deploy"), "-B", str(build), "-G", "Ninja", *words])
    _call([cmake, "--build", str(build), "--target", "install"])
    made = sorted(str(path) for path in prefix.glob("lib*/libaicf_kernels.*"))
    if json:
        print_json({"frozen": str(frozen), "prefix": str(prefix.absolute()), "libraries": made})
        return ExitCode.DONE
    print((build / "generated" / "summary.txt").read_text().rstrip())
    for path in made:
        print(f"{path}: {Path(path).stat().st_size / 1024:.0f} KiB")
    return ExitCode.DONE


def _find_tool(name: str) -> str:
    """Return a program of this environment, which need not be on the PATH, else the machine's; raises :class:`UnavailableError`."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise UnavailableError(f"{name} is not installed; pip install {name}")
    return found


def _call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"the library cannot be built:\n{(done.stdout + done.stderr).strip()}")
