"""Running a CUDA program, unchanged, on the emulated device."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from device.elf import read_executable
from device.interface import UnavailableError
from device.loader import SONAME
from device.settings import EMULATOR_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

SIGNAL_BASE = 128  # a shell's exit code for a program that a signal ended, less the signal's number
TIMED_OUT = 124  # the exit code of a program whose time was up, as of timeout(1)
_GRACE_S = 10.0  # for the report of what it was at
_PR_SET_PDEATHSIG = 1
_LIBRARY_REMEDIES = {
    "libcublas.so": "cuBLAS",
    "libcublasLt.so": "cuBLASLt",
    "libcudnn.so": "cuDNN",
    "libcufft.so": "cuFFT",
    "libcurand.so": "cuRAND's host interface",
    "libcusolver.so": "cuSOLVER",
    "libcusparse.so": "cuSPARSE",
    "libnccl.so": "NCCL",
    "libnpp": "NPP",
}


class ProgramError(UnavailableError):
    """A program that cannot run on the emulated device; the message holds the remedy."""


@dataclass(frozen=True)
class RunOptions:
    """How a program is run: ``settings`` are options of the emulator, as in ``aicf_emulator.h``; after ``max_seconds`` it is ended."""

    settings: Mapping[str, str] = field(default_factory=dict)
    report: Path | None = None
    max_seconds: float | None = None


@dataclass(frozen=True)
class RunResult:
    """How a program ended: its exit code (128 + n where signal n ended it, 124 after its time), and what the emulator's report says."""

    exit_code: int
    signal: str | None
    report: dict[str, Any] | None
    timed_out: bool = False


def find_program(name: str) -> Path:
    """Return the absolute path of a program given by path or by a name on ``PATH``; raises :class:`ProgramError` when there is none."""
    found = shutil.which(name)
    if found is None:
        exists = Path(name).is_file()
        raise ProgramError(f"{name}: " + ("not executable: chmod +x it" if exists else "no such program"))
    # A Path of `./sum` is `sum`, which would be looked for on PATH when it is started.
    return Path(found).absolute()


def check_program(path: Path) -> None:
    """Raise :class:`ProgramError`, with the remedy, for a program whose CUDA calls would not reach the emulated device.

    Scripts and programs without CUDA code of their own are let through: what they load may have some.
    """
    program = read_executable(path)
    if program is None:
        return
    if program.cudart not in (None, SONAME):
        raise ProgramError(
            f"{path} is linked with {program.cudart}; the emulated device is {SONAME}: compile the program with nvcc 13 and -cudart shared"
        )
    if program.has_static_runtime:
        raise ProgramError(
            f"{path} has NVIDIA's CUDA runtime linked into it (nvcc's default), so its calls cannot reach the emulated device.\n"
            "Compile and link it with: nvcc -cudart shared -gencode 'arch=compute_90a,code=[sm_90a,compute_90a]' -lineinfo"
        )
    for needed in program.needed:
        library = next((title for stem, title in _LIBRARY_REMEDIES.items() if needed.startswith(stem)), None)
        if library is not None:
            raise ProgramError(
                f"{path} needs {needed}: {library} ships machine code only, which the emulated device cannot run; "
                "it runs programs that carry PTX for all of their kernels"
            )


def run_program(library: Path, command: Sequence[str], options: RunOptions) -> RunResult:
    """Run a program with the emulator's library in front of every other CUDA runtime, and wait for its end.

    Standard input, output and error are the caller's. Raises :class:`ProgramError` where the program cannot be run.
    """
    path = find_program(command[0])
    check_program(path)
    with tempfile.TemporaryDirectory(prefix="aicf-run-") as folder:
        report_file = Path(folder) / "report.json"
        environment = make_environment(os.environ, library, {**options.settings, "summary_file": str(report_file)})
        # For programs that name another folder for their libraries; the caller's first: a sanitizer's runtime, for one, has to be.
        environment["LD_PRELOAD"] = " ".join([*os.environ.get("LD_PRELOAD", "").split(), str(library)])
        try:
            process = subprocess.Popen([str(path), *command[1:]], env=environment, preexec_fn=make_end_with_parent())
        except OSError as error:
            raise ProgramError(f"{path}: {error.strerror}") from error
        with _signals_passed_on(process):
            status, timed_out = _wait(process, options.max_seconds)
        report = json.loads(report_file.read_text()) if report_file.is_file() else None
    exit_code = TIMED_OUT if timed_out else SIGNAL_BASE - status if status < 0 else status
    result = RunResult(exit_code, _signal_name(status), report, timed_out)
    if options.report is not None:
        _write_report(options.report, command, result)
    return result


def make_end_with_parent() -> Callable[[], None]:
    """Return what a child calls first, so that it ends when this process does, however that ends."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def end_with_parent() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # gone before the call
            os._exit(SIGNAL_BASE + signal.SIGKILL)

    return end_with_parent


def _wait(process: subprocess.Popen[bytes], max_seconds: float | None) -> tuple[int, bool]:
    """Return the exit status, and whether the time was up: then the program is asked to end, which has the emulator say what it is at."""
    try:
        return process.wait(max_seconds), False
    except subprocess.TimeoutExpired:
        process.terminate()
    try:
        return process.wait(_GRACE_S), True
    except subprocess.TimeoutExpired:
        process.kill()
    return process.wait(), True


def find_driver(library: Path) -> Path:
    """Return where the emulated device's ``libcuda.so.1`` lies, for programs linked with ``-lcuda``; it goes with ``libcudart.so.13``."""
    return library.parent / "driver" / "libcuda.so.1"


def make_environment(base: Mapping[str, str], library: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which CUDA is the emulated device of ``library``, with ``settings`` beside those that ``base`` holds."""
    folders = [str(library.parent), str(find_driver(library).parent), *filter(None, [base.get("LD_LIBRARY_PATH")])]
    variables = {EMULATOR_PREFIX + name.upper(): value for name, value in settings.items()}
    return {**base, **variables, "LD_LIBRARY_PATH": os.pathsep.join(folders)}


@contextmanager
def _signals_passed_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave the terminal's signals to the program, which gets them too, and pass on what is sent to us alone."""

    def pass_on(number: int, _frame: object) -> None:
        process.send_signal(number)

    kept = {signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN)}
    kept |= {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _signal_name(status: int) -> str | None:
    if status >= 0:
        return None
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def _write_report(path: Path, command: Sequence[str], result: RunResult) -> None:
    head = {"command": list(command), "exit_code": result.exit_code, "signal": result.signal}
    path.write_text(json.dumps({**head, **(result.report or {"errors": 0, "findings": [], "cuda_used": False})}, indent=1) + "\n")
