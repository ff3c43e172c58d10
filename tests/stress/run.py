"""Stress of the emulated device: CUB and Thrust x types x host threads x schedules x seeds, every result compared with the host's.

python tests/stress/run.py [--seconds 1800] [--algorithm scan ...] [--workers 1 2 4] [--jobs 1] [--record profiles/emulator/stress.md]

Prints how many runs there were of each algorithm and type, and how many were wrong; ends with 1 when one was.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from device import read_settings
from device.loader import find_emulator_library
from device.programs import BuildOptions, build_program, find_programs
from device.programs.process import make_environment
from device.toolchain import find_toolchain

SOURCE = Path(__file__).with_name("algorithms.cu")
ALGORITHMS = (
    *("scan", "scan_by_key", "reduce", "reduce_by_key", "run_length", "select", "unique", "partition", "histogram", "radix_sort"),
    *("merge_sort", "thrust_sort", "thrust_unique", "thrust_sets", "thrust_reduce_by_key"),
)
WORKERS = (1, 2, 4)
SCHEDULES = ("default", "random", "reversed", "greedy")
Counts = Counter[tuple[str, str]]  # by algorithm and type
LARGE, CHECKED = 1_500_000, 20_000  # elements at most: without checks, and with all of them
_LONGEST_S = 600


@dataclass(frozen=True)
class Case:
    """One run of a program: how the emulated device runs it, and what it draws its data from."""

    workers: int
    schedule: str
    checks: str
    seed: int
    most: int
    rounds: int


@dataclass(frozen=True)
class Result:
    """Of one run: rounds and wrong results by type, and what was said where it went wrong."""

    rounds: dict[str, int]
    wrong: dict[str, int]
    complaint: str


def build_algorithm(name: str, library: Path | None = None) -> Path:
    """Return the program of one algorithm, compiled where its content is not in the cache; raises RuntimeError with what nvcc says."""
    settings = read_settings()
    library = library or find_emulator_library(settings).resolve()
    options = BuildOptions(
        find_toolchain(), library, settings.cache_dir / "programs", ptx_only=True, extra=(f"-DSTRESS_ALGORITHM={name}",), timeout_s=3600
    )
    (program,) = find_programs(SOURCE)
    built = build_program(program, options)
    if built.binary is None:
        raise RuntimeError(f"{name}: {built.reason}")
    return built.binary


def run_case(binary: Path, library: Path, case: Case) -> Result:
    """Run a program once; a run that ends without its numbers, or with findings of the checks, is a wrong one of type ``-``."""
    settings = {
        "workers": case.workers,
        "schedule": case.schedule,
        "checks": case.checks,
        "seed": case.seed,
        "error_exitcode": 9,
        "print_reports": 1,
    }
    environment = make_environment(os.environ, library, {name: str(value) for name, value in settings.items()})
    command = [str(binary), str(case.rounds), str(case.seed), str(case.most)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=_LONGEST_S, check=False)
    except subprocess.TimeoutExpired:
        return Result({}, {"-": 1}, f"did not end in {_LONGEST_S} s")
    rows = [line.split() for line in done.stdout.splitlines() if len(line.split()) == 3 and line.split()[1].isdigit()]
    rounds, wrong = {row[0]: int(row[1]) for row in rows}, {row[0]: int(row[2]) for row in rows if row[2] != "0"}
    if done.returncode == 0 and not wrong and rows:
        return Result(rounds, {}, "")
    return Result(rounds, wrong or {"-": 1}, (done.stdout[-600:] + done.stderr[-600:]).strip())


def draw_cases(workers: Sequence[int], seed: int) -> Iterator[Case]:
    """Yield cases without end: every number of host threads, first large and unchecked, then small under all checks and schedules."""
    for turn in itertools.count():
        for number in workers:
            yield Case(number, "default", "none", seed + turn, LARGE, 2)
            yield Case(number, SCHEDULES[turn % len(SCHEDULES)], "all", seed + turn, CHECKED, 1)


def main(arguments: list[str] | None = None) -> int:
    """Run until the time is up; return 1 when a result was wrong."""
    args = _parse(arguments)
    library = find_emulator_library(read_settings()).resolve()
    rounds: Counts = Counter()
    wrong: Counts = Counter()
    ran: Counter[int] = Counter()
    todo = ((name, case) for case in draw_cases(args.workers, args.seed) for name in args.algorithm)
    with ThreadPoolExecutor(max(1, args.jobs)) as pool:
        programs = dict(zip(args.algorithm, pool.map(build_algorithm, args.algorithm), strict=True))
        end = time.monotonic() + args.seconds
        while time.monotonic() < end:
            batch = list(itertools.islice(todo, max(1, args.jobs)))
            results = pool.map(lambda each: run_case(programs[each[0]], library, each[1]), batch)
            for (name, case), result in zip(batch, results, strict=True):
                ran[case.workers] += 1
                rounds.update({(name, kind): count for kind, count in result.rounds.items()})
                wrong.update({(name, kind): count for kind, count in result.wrong.items()})
                if result.complaint:
                    print(f"{name} {case}:\n{result.complaint}", file=sys.stderr, flush=True)
    _print_counts(args.algorithm, rounds, wrong)
    threads = ", ".join(f"{ran[number]} with {number}" for number in args.workers)
    summary = f"{sum(ran.values())} programs run ({threads} host threads), {sum(rounds.values())} results, {sum(wrong.values())} wrong"
    print(summary)
    if args.record:
        args.record.write_text(render_record(args.algorithm, rounds, wrong, summary, f"{args.seconds:.0f} s, seeds from {args.seed} on"))
    return int(sum(wrong.values()) != 0 or not rounds)


def render_record(names: Sequence[str], rounds: Counts, wrong: Counts, summary: str, circumstances: str) -> str:
    """Return the counts as a page of Markdown: results by algorithm and type, with the wrong ones in brackets."""
    kinds, rows = _tabulate(names, rounds, wrong)
    lines = [
        "# Stress of the emulated device",
        "",
        "Made by `python tests/stress/run.py --record profiles/emulator/stress.md`: CUB's and Thrust's algorithms with several host",
        "threads, large without checks, and small under all checks and every schedule. Each result is compared with the host's; the wrong",
        "ones are in brackets.",
        "",
        f"{summary} ({circumstances}).",
        "",
        f"| algorithm | {' | '.join(kinds)} |",
        "|---|" + "--:|" * len(kinds),
        *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows),
    ]
    return "\n".join(lines) + "\n"


def _tabulate(names: Sequence[str], rounds: Counts, wrong: Counts) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Return the types, and for each algorithm the number of results of each type with the wrong ones in brackets."""
    kinds = sorted({kind for _, kind in (*rounds, *wrong)})
    return kinds, [
        (name, [f"{rounds[name, kind]} ({wrong[name, kind]})" if rounds[name, kind] + wrong[name, kind] else "" for kind in kinds])
        for name in names
    ]


def _print_counts(names: Sequence[str], rounds: Counts, wrong: Counts) -> None:
    kinds, rows = _tabulate(names, rounds, wrong)
    print(f"{'results (wrong)':<22}" + "".join(f"{kind:>12}" for kind in kinds))
    for name, cells in rows:
        print(f"{name:<22}" + "".join(f"{cell:>12}" for cell in cells))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Stress the emulated device with CUB and Thrust; ends with 1 at a wrong result.")
    parser.add_argument("--seconds", type=float, default=1800, help="how long, after the programs are compiled (1800)")
    parser.add_argument("--algorithm", nargs="+", choices=ALGORITHMS, default=ALGORITHMS, help="all of them unless named")
    parser.add_argument("--workers", nargs="+", type=int, default=WORKERS, help="host threads (1 2 4)")
    parser.add_argument("--seed", type=int, default=1, help="of the data and of the random schedule (1)")
    parser.add_argument("--jobs", type=int, default=1, help="compilations and runs at the same time (1)")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the counts as Markdown too")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
