"""The command line of ``scripts/run_programs.py``: a folder in, a table and an exit status out."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from device import UnavailableError, read_settings
from device.loader import find_emulator_library
from device.programs.build import BuildOptions
from device.programs.find import find_programs
from device.programs.verdicts import STATUSES, RunOptions, Verdict, run_program
from device.toolchain import find_toolchain

_STYLES = dict(zip(STATUSES, ("green", "green", "bold red", "yellow", "cyan", "magenta", "blue"), strict=True))


def main(arguments: list[str] | None = None) -> int:
    """Run the programs below the given folders; return 1 when one of them failed, 0 otherwise."""
    args = _parse(arguments)
    try:
        settings = read_settings()
        runtime = find_emulator_library(settings).resolve()
        toolchain = find_toolchain()
    except UnavailableError as error:
        print(error, file=sys.stderr)
        return 2
    cache = settings.cache_dir / "programs"
    build = BuildOptions(
        toolchain, runtime, cache, args.arch, args.standard, args.ptx_only, tuple(args.nvcc_option), timeout_s=args.build_timeout
    )
    run = RunOptions(
        runtime,
        cache,
        args.checks,
        args.timeout,
        tuple(_parse_option(option) for option in args.option),
        tuple(args.argument),
        args.rerun,
        not args.no_own_arguments,
        core_s=args.core_seconds,
    )
    programs = [program for folder in args.folder for program in find_programs(folder, f"*{args.filter}*")]
    if args.list:
        print("\n".join(f"{p.main}  {' '.join(h.name for h in p.helpers)}".rstrip() for p in programs))
        return 0
    console = Console(stderr=True, highlight=False)
    verdicts: list[Verdict] = []
    with ThreadPoolExecutor(max(1, args.jobs)) as pool:
        for number, verdict in enumerate(pool.map(lambda p: run_program(p, build, run), programs), 1):
            verdicts.append(verdict)
            line = f"[{number}/{len(programs)}] {verdict.status:<11} {verdict.seconds:6.1f} s  {verdict.program}  {verdict.reason[:120]}"
            console.print(Text(line, style=_STYLES[verdict.status]), soft_wrap=True)
    _print_table(verdicts)
    if args.json:
        args.json.write_text(json.dumps([asdict(verdict) for verdict in verdicts], indent=1))
    return int(any(verdict.status == "fail" for verdict in verdicts))


def _print_table(verdicts: list[Verdict]) -> None:
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 180)
    table = Table("program", "verdict", "s", "why", title="self-checking programs on the emulated device")
    for verdict in sorted(verdicts, key=lambda v: (STATUSES.index(v.status), v.program)):
        table.add_row(
            verdict.program, Text(verdict.status, style=_STYLES[verdict.status]), f"{verdict.seconds:.1f}", Text(verdict.reason[:200])
        )
    console.print(table)
    counts = Counter(verdict.status for verdict in verdicts)
    console.print(", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status]) + f" of {len(verdicts)}")


def _parse_option(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Compile every self-checking CUDA program below a folder, unchanged, run it on the emulated device under all checks, "
        "and print for each: pass, ran (exit status 0, but it says nothing about its result), fail, unsupported, waived (by itself), "
        "timeout, compile. Exits with 1 when one fails.",
    )
    parser.add_argument("folder", type=Path, nargs="+", help="folder, or one source file")
    parser.add_argument("--jobs", type=int, default=1, help="programs at the same time (1)")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for one program (120)")
    parser.add_argument("--core-seconds", type=float, default=0.0, help="processor time for one program: fair on a busy machine (0: any)")
    parser.add_argument("--build-timeout", type=float, default=900.0, help="seconds for one compilation (900)")
    parser.add_argument("--checks", default="all", help="checks of the emulator: all, none, or a list (all)")
    parser.add_argument("--arch", default="90a", help="compute capability to compile for, as in 80 or 90a (90a)")
    parser.add_argument("--standard", default="c++17", help="C++ standard (c++17)")
    parser.add_argument("--ptx-only", action="store_true", help="leave machine code out: compiles faster")
    parser.add_argument("--filter", default="*", metavar="GLOB", help="only programs whose path matches")
    parser.add_argument(
        "--nvcc-option", action="append", default=[], metavar="OPTION", help="one more option of nvcc (repeat: --nvcc-option=-I/x)"
    )
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the emulator (repeat)")
    parser.add_argument("--argument", action="append", default=[], help="an argument for every program (repeat)")
    parser.add_argument(
        "--no-own-arguments", action="store_true", help="start programs without the arguments that their Makefile's `run` gives them"
    )
    parser.add_argument("--rerun", action="store_true", help="run again what has a verdict already")
    parser.add_argument("--list", action="store_true", help="list the programs and stop")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts, with outputs and findings")
    return parser.parse_args(arguments)
