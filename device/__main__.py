"""Command line of the emulated device: ``python -m device run PROGRAM [ARGS]`` and ``python -m device info``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from device import UnavailableError, read_settings
from device.emulated import EmulatedDevice
from device.interface import DeviceError
from device.loader import find_emulator_library, find_gpus
from device.programs.find import find_programs
from device.programs.nvcc import compile_program
from device.programs.process import RunOptions, run_program
from device.settings import TARGETS, SettingError, parse_choice
from device.toolchain import find_toolchain

_WRONG_USE, _NOT_AVAILABLE = 2, 3
_SCHEDULES = ("default", "reversed", "greedy", "random")
_MODES = ("eager", "deferred")

app = typer.Typer(
    name="device",
    help="Run CUDA programs, unchanged, on the emulated device, with a sanitizer and exact counters.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="Compile programs with: python -m device compile prog.cu -o prog",
)

_RUN_HELP = """Run a program on the emulated device and exit with its exit code (128 + n if signal n ended it).

The program must be linked with `nvcc -cudart shared`. Findings are printed to stderr as they happen, and counted at the end.

\b
python -m device run ./prog 1024               all checks
python -m device run --checks none ./prog      as fast as possible
python -m device run --schedule random --seed 7 --error-exitcode 9 ./prog
python -m device run --mode deferred --seed 7 ./prog    queued work runs at a synchronisation, in a random order
python -m device run --max-seconds 60 ./prog      stops it after 60 s, and says where its warps were
python -m device run --devices 4 ./prog
python -m device run --leak-check ./prog
python -m device run --counters --report out.json ./prog -- --args of --the program
"""


@app.command(
    "run",
    help=_RUN_HELP,
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False},
)
def run(
    command: Annotated[list[str], typer.Argument(metavar="PROGRAM [ARGS]...", help="the program and its arguments")],
    checks: Annotated[str, typer.Option(help="all, none, or a list of memcheck,initcheck,synccheck,racecheck,streamcheck")] = "all",
    schedule: Annotated[str, typer.Option(help="order of blocks and warps: default, reversed, greedy, random")] = "default",
    seed: Annotated[int, typer.Option(min=0, help="of the random schedule, and of the order in deferred mode")] = 0,
    mode: Annotated[
        str, typer.Option(help="when queued work runs: eager (at once), deferred (at a synchronisation, in an order that streams allow)")
    ] = "eager",
    devices: Annotated[int, typer.Option(min=1, max=16, help="number of emulated devices")] = 1,
    target: Annotated[str, typer.Option(help="GPU whose properties are reported: h200, h100, a100 (default: AICF_TARGET)")] = "",
    report: Annotated[
        Path | None, typer.Option("--report", "--json", metavar="FILE", dir_okay=False, help="write all findings and counts as JSON")
    ] = None,
    counters: Annotated[bool, typer.Option("--counters", help="count instructions, sectors, conflicts; print them by kernel")] = False,
    leak_check: Annotated[bool, typer.Option("--leak-check", help="report memory still allocated at exit as an error")] = False,
    error_exitcode: Annotated[int, typer.Option(min=0, max=255, help="exit code if there are errors; 0: the program's own")] = 0,
    print_limit: Annotated[int, typer.Option(min=0, help="how many distinct findings are printed")] = 100,
    max_seconds: Annotated[float, typer.Option(min=0, help="stop it after this many seconds, with exit code 124; 0: no limit")] = 0,
    zero_memory: Annotated[bool, typer.Option("--zero-memory", help="new memory is zeroed; a note names reads that rely on it")] = False,
    option: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="any other option of the emulator; repeatable")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="no summary if there are no findings")] = False,
) -> None:
    """Run a program on the emulated device."""
    own = read_settings()
    settings = {
        "checks": checks,
        "schedule": parse_choice("--schedule", schedule, _SCHEDULES),
        "seed": str(seed),
        "mode": parse_choice("--mode", mode, _MODES),
        "devices": str(devices),
        "target": parse_choice("--target", target, TARGETS) if target else own.target,
        "counters": str(int(counters)),
        "leak_check": str(int(leak_check)),
        "error_exitcode": str(error_exitcode),
        "print_limit": str(print_limit),
        "zero_memory": str(int(zero_memory)),
        "host_accesses": "1",
        "print_reports": "1",
        "summary": "2" if quiet else "1",
        **_parse_options(option or []),
    }
    result = run_program(find_emulator_library(own), command, RunOptions(settings, report, max_seconds or None))
    if result.timed_out:
        print(f"device: the program was ended after {max_seconds:g} s (--max-seconds)", file=sys.stderr)
    elif result.signal is not None:
        errors = (result.report or {}).get("errors", 0)
        print(f"device: the program was ended by {result.signal}; the sanitizer had found {errors} errors", file=sys.stderr)
    raise typer.Exit(result.exit_code)


_COMPILE_HELP = """Compile a program with nvcc for the emulated device. All arguments go to nvcc.

These are added: `-cudart shared`, `-lineinfo`, the architecture (sm_90a, with its PTX) if none is named, and the folder with the emulated
device's libcudart.so and libcuda.so. The program also runs on a GPU.

\b
python -m device compile prog.cu -o prog
python -m device compile -O2 -std=c++20 -arch=sm_80 a.cu b.cu -o prog -lcuda
"""


@app.command(
    "compile",
    help=_COMPILE_HELP,
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True},
)
def compile_(
    arguments: Annotated[list[str], typer.Argument(metavar="[NVCC OPTIONS] SOURCES...", help="sources, and options for nvcc")],
) -> None:
    """Compile a program for the emulated device."""
    raise typer.Exit(compile_program(find_toolchain(), find_emulator_library(read_settings()), arguments))


@app.command("find")
def find(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...", exists=True, help="folders, or source files")],
    pattern: Annotated[str, typer.Option("--filter", metavar="GLOB", help="only programs whose path matches")] = "*",
) -> None:
    """List the CUDA programs below folders: each source with a main, and the sources that belong to it."""
    for folder in folders:
        for program in find_programs(folder, f"*{pattern}*"):
            print(" ".join([str(program.main), *(helper.name for helper in program.helpers)]))


@app.command("info")
def info() -> None:
    """Show the available devices, the path of the emulator's library, and the values of its options."""
    settings = read_settings()
    library = find_emulator_library(settings)
    device = EmulatedDevice(settings)
    properties = device.properties
    print(f"emulated device   {properties.name}")
    print(f"library           {library}")
    print(f"interpreter       {device.observer.version}")
    print(f"multiprocessors   {properties.num_sms}")
    print(f"GPUs              {find_gpus().reason}")
    for name in device.observer.option_names():
        print(f"  {name:<17} {device.observer.get_option(name)}")


def _parse_options(pairs: list[str]) -> dict[str, str]:
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise SettingError(f"--option {pair!r}: must be NAME=VALUE")
        options[name] = value
    return options


def main() -> None:
    """Run the command line; our own errors become one message and an exit code."""
    try:
        app()
    except SettingError as error:
        print(f"device: {error}", file=sys.stderr)
        sys.exit(_WRONG_USE)
    except UnavailableError as error:
        print(f"device: {error}", file=sys.stderr)
        sys.exit(_NOT_AVAILABLE)
    except DeviceError as error:
        print(f"device: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
