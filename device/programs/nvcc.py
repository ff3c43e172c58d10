"""Compiling a program with nvcc for the emulated device: shared CUDA runtime, PTX for every kernel, line information."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from device.programs.process import find_driver
from device.settings import SettingError
from device.toolchain import Toolchain

ARCHITECTURE = ("-gencode", "arch=compute_90a,code=[sm_90a,compute_90a]")
_NAMES_ARCHITECTURE = ("-arch", "--gpu-architecture", "-gencode", "--generate-code", "-code", "--gpu-code")
_RUNTIME_OPTIONS = ("-cudart", "--cudart")


def make_links(folder: Path, library: Path) -> Path:
    """Make the names in ``folder`` by which a linker finds the emulated device: ``libcudart.so`` and ``libcuda.so``; returns the folder."""
    folder.mkdir(exist_ok=True)
    for name, target in (("libcudart.so", library), ("libcuda.so", find_driver(library))):
        if target.is_file() and not (folder / name).exists():
            (folder / name).symlink_to(target.resolve())
    return folder


def list_link_options(links: Path, toolchain: Toolchain) -> list[str]:
    """Return the options that link with what :func:`make_links` made; ``-lcuda`` only where the program calls the driver."""
    options = [f"-L{links}", f"-L{toolchain.cudart_library.parent}", "-Xlinker", "--allow-shlib-undefined"]
    return [*options, *(("-Xlinker", "--as-needed", "-lcuda") if (links / "libcuda.so").exists() else ())]


def list_options(arguments: Sequence[str]) -> list[str]:
    """Return the options that ``arguments`` of nvcc lack; raises :class:`SettingError` where they ask for another runtime."""
    for position, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        if name in _RUNTIME_OPTIONS and (value or next(iter(arguments[position + 1 :]), "")) != "shared":
            raise SettingError(f"{argument}: the emulated device needs the shared CUDA runtime; leave it out, or say -cudart shared")
    options = [] if any(argument.partition("=")[0] in _RUNTIME_OPTIONS for argument in arguments) else ["-cudart", "shared"]
    if not any(argument.partition("=")[0] in _NAMES_ARCHITECTURE for argument in arguments):
        options += ARCHITECTURE
    if "-lineinfo" not in arguments:
        options.append("-lineinfo")
    return options if "-g" in arguments else [*options, "-Xcompiler", "-g1"]  # lines of the host's calls in findings


def compile_program(toolchain: Toolchain, library: Path, arguments: Sequence[str]) -> int:
    """Call nvcc with ``arguments`` and what they lack for the emulated device, whose ``library`` is linked; returns nvcc's exit code."""
    options = list_options(arguments)
    with tempfile.TemporaryDirectory(prefix="aicf-compile-") as folder:
        links = make_links(Path(folder) / "lib", library)
        command = [str(toolchain.nvcc), *options, *arguments, *list_link_options(links, toolchain)]
        return subprocess.run(command, check=False).returncode
