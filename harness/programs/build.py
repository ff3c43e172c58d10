"""Compile a program unchanged, with the options that the emulated device needs; built once for one content."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness.programs.find import Program
from harness.toolchain import Toolchain

_ERROR_LINE = re.compile(r"\b(?:error|fatal|undefined reference|cannot find|unresolved)\b", re.IGNORECASE)
_NEEDS_RDC = re.compile(r"separate compilation mode|Unresolved extern|external linkage.*-rdc|__cudaRegisterLinkedBinary")
_OPENMP = re.compile(r"^[ \t]*#[ \t]*(?:pragma[ \t]+omp|include[ \t]*<omp\.h>)", re.MULTILINE)
_HEADER_SUFFIXES = (".h", ".hpp", ".cuh", ".hxx", ".inl", ".inc", ".cu", ".cpp", ".cc", ".c")


@dataclass(frozen=True)
class BuildOptions:
    """How programs are compiled. ``arch`` is a compute capability as in ``90a``; ``ptx_only`` leaves machine code out, which saves time."""

    toolchain: Toolchain
    runtime: Path
    cache: Path
    arch: str = "90a"
    standard: str = "c++17"
    ptx_only: bool = False
    extra: tuple[str, ...] = ()
    timeout_s: float = 600.0


@dataclass(frozen=True)
class Built:
    """A program's executable, or None and why there is none."""

    binary: Path | None
    reason: str
    seconds: float = 0.0


def build_program(program: Program, options: BuildOptions) -> Built:
    """Return the executable, from the cache where this content was built before; a failure is kept there too."""
    place = options.cache / "bin" / hash_program(program, options)
    binary, failure = place / program.main.stem, place / "error.txt"
    if binary.is_file():
        return Built(binary, "")
    if failure.is_file():
        return Built(None, failure.read_text())
    place.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="build-", dir=place.parent))
    try:
        reason = _compile(program, options, scratch)
        if reason:
            (scratch / "error.txt").write_text(reason)
        shutil.rmtree(place, ignore_errors=True)
        scratch.replace(place)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Built(binary if binary.is_file() else None, reason)


def find_driver(runtime: Path) -> Path:
    """Return where the emulated device's ``libcuda.so.1`` lies, for programs that call the driver API; it goes with ``libcudart.so.13``."""
    return runtime.parent / "driver" / "libcuda.so.1"


def hash_program(program: Program, options: BuildOptions) -> str:
    """Return what names a build: the program's sources, the headers that lie in its folder, the compiler, its options."""
    how = (options.toolchain.identity, _flags(program, options), program.main.name, find_driver(options.runtime).is_file())
    digest = hashlib.sha256(repr(how).encode())
    local = (path for path in program.folder.rglob("*") if path.suffix in _HEADER_SUFFIXES and path.is_file())
    for path in sorted({program.main, *program.helpers, *local}):
        digest.update(str(path.relative_to(program.folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:24]


def _flags(program: Program, options: BuildOptions) -> list[str]:
    code = f"compute_{options.arch}" if options.ptx_only else f"[sm_{options.arch},compute_{options.arch}]"
    flags = ["-gencode", f"arch=compute_{options.arch},code={code}", "-cudart", "shared", "-lineinfo", f"-std={options.standard}"]
    flags += ["--extended-lambda", "--expt-relaxed-constexpr", "-w", *options.extra]
    if any(_OPENMP.search(path.read_text(errors="replace")) for path in (program.main, *program.helpers)):
        flags += ["-Xcompiler", "-fopenmp"]
    return flags + [f"-I{folder}" for folder in program.includes]


def _compile(program: Program, options: BuildOptions, scratch: Path) -> str:
    """Try the whole folder, then the source with main alone, each with relocatable device code where nvcc asks for it."""
    attempts = [(program.main, *program.helpers), (program.main,)] if program.helpers else [(program.main,)]
    reasons = []
    for sources in attempts:
        reason = _call_nvcc(program, sources, options, scratch, ())
        if _NEEDS_RDC.search(reason):
            reason = _call_nvcc(program, sources, options, scratch, ("-rdc=true", "-lcudadevrt"))
        if not reason:
            return ""
        reasons.append(reason)
    return reasons[0]


def _call_nvcc(program: Program, sources: tuple[Path, ...], options: BuildOptions, scratch: Path, more: tuple[str, ...]) -> str:
    """Compile and link; return "" or the errors."""
    links = scratch / "lib"
    links.mkdir(exist_ok=True)
    for name, library in (("libcudart.so", options.runtime), ("libcuda.so", find_driver(options.runtime))):
        if library.is_file() and not (links / name).exists():
            (links / name).symlink_to(library)
    command = [str(options.toolchain.nvcc), *_flags(program, options), *more, *map(str, sources)]
    command += [f"-L{links}", f"-L{options.toolchain.cudart_library.parent}", "-Xlinker", "--allow-shlib-undefined"]
    if (links / "libcuda.so").exists():
        command += ["-Xlinker", "--as-needed", "-lcuda"]
    command += ["-o", str(scratch / program.main.stem)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=options.timeout_s, cwd=program.folder
        )
    except subprocess.TimeoutExpired:
        return f"the compiler took more than {options.timeout_s:.0f} s"
    shutil.rmtree(links, ignore_errors=True)
    if done.returncode == 0:
        return ""
    lines = (done.stdout + done.stderr).replace(f"{program.folder}/", "").splitlines()
    return "\n".join([line.strip() for line in lines if _ERROR_LINE.search(line)][:8] or lines[-8:] or ["the compiler failed silently"])
