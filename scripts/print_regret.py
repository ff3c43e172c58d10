"""How far an op's default choices are behind the fastest variant of a file of measurements: ``print_regret.py gemm_bias_act FILE.csv``.

The file has the columns run, problem, contender, cold_us and status; only times of one run are compared with each other. Variants that the
op no longer has, and problems on which the choice was not timed, are left out and counted.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from pathlib import Path

from harness.discover import find_op
from harness.spec import Op, SpecError


def find_regrets(op: Op, rows: list[dict[str, str]]) -> tuple[dict[tuple[str, str], tuple[float, str, str]], int]:
    """Return (regret as a share, choice, fastest) by problem and run, and how many problems had no time of the choice."""
    assert op.choose is not None
    problems = {p.name: p for p in op.problems}
    times: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for row in rows:
        if row["problem"] in problems and row["status"] == "passed" and _is_variant(op, row["contender"]):
            times[row["problem"], row["run"]][row["contender"]] = float(row["cold_us"])
    found, without = {}, 0
    for (name, run), by_variant in times.items():
        choice = op.choose(problems[name]).variant.name
        if choice not in by_variant:
            without += 1
            continue
        fastest = min(by_variant, key=lambda v: by_variant[v])
        found[name, run] = (by_variant[choice] / by_variant[fastest] - 1.0, choice, fastest)
    return found, without


def _is_variant(op: Op, name: str) -> bool:
    if "/" not in name:
        return False
    try:
        op.select_variants([name])
    except SpecError:
        return False
    return True


def main() -> None:
    """Print every regret, largest first, and their mean."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("op")
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    with arguments.file.open(newline="") as file:
        found, without = find_regrets(find_op(arguments.op).op, list(csv.DictReader(file)))
    for (name, run), (regret, choice, fastest) in sorted(found.items(), key=lambda item: -item[1][0]):
        print(f"{100 * regret:6.2f} %  run {run}  {name}: {choice}" + (f", fastest {fastest}" if regret > 0.0 else ""))
    print(
        f"mean {100 * sum(r for r, _, _ in found.values()) / len(found):.2f} % on {len(found)} problems; no time of the choice on {without}"
    )


if __name__ == "__main__":
    main()
