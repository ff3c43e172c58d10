"""Compiling a program unchanged, with the options that the emulated device needs; cached by content."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from device.programs.find import Program, find_header
from device.programs.missing import explain, find_missing_header, find_missing_library, lacks_symbols
from device.programs.nvcc import list_link_options, make_links
from device.programs.process import find_driver
from device.programs.recipe import choose_standard
from device.toolchain import Toolchain

_ERROR_LINE = re.compile(r"\b(?:error|fatal|undefined reference|cannot find|unresolved)\b", re.IGNORECASE)
_STOPPED = re.compile(r"[Ss]ignal terminated|Terminated signal|Killed|the compiler took more than")
_NEEDS_RDC = re.compile(r"separate compilation mode|Unresolved extern|external linkage.*-rdc|__cudaRegisterLinkedBinary")
_OPENMP = re.compile(r"^[ \t]*#[ \t]*(?:pragma[ \t]+omp|include[ \t]*<omp\.h>)", re.MULTILINE)
_NEEDS_20 = re.compile(r"-std=c\+\+20|C\+\+20|c\+\+2a|\W(?:span|ranges|concept|requires|bit_cast|popcount|format)\W")
# Libraries of CUDA's and the standard ones: what is there of them is linked anyway, the rest is named by what the program lacks.
_LINKED_ANYWAY = re.compile(r"-l(?:cu\w+|nv\w+|npp\w+|stdc\+\+|c|gomp)")
_WITHOUT = "without:"  # among what is asked for: leave a library out
_MOST_HEADERS = 6  # that are looked for in the collection, one after the other
_LONGEST_LINE = 300
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
        if reason and _STOPPED.search(reason):
            return Built(None, reason)  # says nothing of the program: next time again
        if reason:
            (scratch / "error.txt").write_text(reason)
        shutil.rmtree(place, ignore_errors=True)
        scratch.replace(place)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return Built(binary if binary.is_file() else None, reason)


def hash_program(program: Program, options: BuildOptions) -> str:
    """Return what names a build: the program's sources, the headers beside its main, the compiler, its options."""
    how = (
        options.toolchain.identity,
        _flags(program, options),
        program.recipe.libraries,
        program.main.name,
        find_driver(options.runtime).is_file(),
    )
    digest = hashlib.sha256(repr(how).encode())
    local = (path for path in program.main.parent.rglob("*") if path.suffix in _HEADER_SUFFIXES and path.is_file())
    for path in sorted({program.main, *program.helpers, *local}):
        digest.update(os.path.relpath(path, program.folder).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:24]


def _flags(program: Program, options: BuildOptions) -> list[str]:
    code = f"compute_{options.arch}" if options.ptx_only else f"[sm_{options.arch},compute_{options.arch}]"
    standard = choose_standard(options.standard, program.recipe.standard)
    flags = ["-gencode", f"arch=compute_{options.arch},code={code}", "-cudart", "shared", "-lineinfo", f"-std={standard}"]
    flags += ["--extended-lambda", "--expt-relaxed-constexpr", "-w", *options.extra, *program.recipe.flags]
    if any(_OPENMP.search(path.read_text(errors="replace")) for path in (program.main, *program.helpers)):
        flags += ["-Xcompiler", "-fopenmp"]
    return flags + [f"-I{folder}" for folder in program.includes]


def _compile(program: Program, options: BuildOptions, scratch: Path) -> str:
    """Try all that belongs to the program, then its main source alone, then with the sources beside it; return "" or the first errors."""
    sources = (program.main, *program.helpers)
    attempts = [sources]
    if program.helpers and not program.recipe.sources:
        attempts.append((program.main,))
    more: tuple[str, ...] = ()
    first = ""
    for number, attempt in enumerate(attempts):
        reason, more = _compile_with_what_it_asks(program, attempt, options, scratch, more)
        if not reason:
            return ""
        first = first or reason
        if number == 0 and program.spare and lacks_symbols(reason):
            attempts.append((*sources, *program.spare))
    return explain(first)


def _compile_with_what_it_asks(
    program: Program, sources: tuple[Path, ...], options: BuildOptions, scratch: Path, more: tuple[str, ...]
) -> tuple[str, tuple[str, ...]]:
    """Compile; where nvcc asks for relocatable code, a newer standard, or a header that the collection has elsewhere, once more with it."""
    for _ in range(_MOST_HEADERS):
        reason = _call_nvcc(program, sources, options, scratch, more)
        if not reason:
            break
        asked: list[str] = []
        header = find_missing_header(reason)
        if header and (folder := find_header(program.top, header, program.main)) is not None:
            asked = [f"-I{folder}"]
        elif _NEEDS_RDC.search(reason):
            asked = ["-rdc=true", "-lcudadevrt"]
        elif _NEEDS_20.search(reason) and choose_standard(options.standard, "c++20") == "c++20":
            asked = ["-std=c++20"]
        elif library := find_missing_library(reason):  # it may do without; if not, its link says what it lacks
            asked = [f"{_WITHOUT}{library}"]
        asked = [option for option in asked if option not in more]
        if not asked:
            break
        more = (*more, *asked)
    return reason, more


def _call_nvcc(program: Program, sources: tuple[Path, ...], options: BuildOptions, scratch: Path, more: tuple[str, ...]) -> str:
    """Compile and link; return "" or the errors."""
    links = make_links(scratch / "lib", options.runtime)
    flags = _flags(program, options)
    if any(option.startswith("-std=") for option in more):
        flags = [option for option in flags if not option.startswith("-std=")]
    command = [str(options.toolchain.nvcc), *flags, *(option for option in more if not option.startswith(_WITHOUT)), *map(str, sources)]
    command += list_link_options(links, options.toolchain)
    without = {option.removeprefix(_WITHOUT) for option in more if option.startswith(_WITHOUT)}
    libraries = [name for name in program.recipe.libraries if not _LINKED_ANYWAY.fullmatch(name)]
    command += [name for name in libraries if name.removeprefix("-l") not in without]
    command += ["-o", str(scratch / program.main.stem)]
    try:
        code, output = _run_compiler(command, program.folder, options.timeout_s)
    except subprocess.TimeoutExpired:
        return f"the compiler took more than {options.timeout_s:.0f} s"
    shutil.rmtree(links, ignore_errors=True)
    if code == 0:
        return ""
    lines = output.replace(f"{program.folder}/", "").splitlines()
    return "\n".join(
        [line.strip()[:_LONGEST_LINE] for line in lines if _ERROR_LINE.search(line)][:8] or lines[-8:] or ["the compiler failed silently"]
    )


def _run_compiler(command: list[str], folder: Path, timeout_s: float) -> tuple[int, str]:
    """Return the exit code and all output; one out of time or left by an exception ends with what it started."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=folder,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, output
