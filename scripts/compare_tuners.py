"""Kernel Tuner and our sweep on the same space, on a GPU; what is done is described in profiles/tuning/tuners.py.

python scripts/compare_tuners.py run --out FILE      tune with both, ours five times, and measure the winners beside each other
python scripts/compare_tuners.py report FILE         profiles/tuning/h200.md and h200.json from what `run` wrote
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "profiles" / "tuning"))

import tuners


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "report", "kernel_tuner", *tuners.OURS, "winners"), help="the latter are steps of run")
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--out", type=Path, default=Path("build/tuners.json"))
    parser.add_argument("--strategy", action="append", choices=tuple(tuners.OURS), help="run: only these of ours; repeatable")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--winner", action="append", type=json.loads, default=[])
    arguments = parser.parse_args()
    if arguments.what == "run":
        tuners.run_all(arguments.out, arguments.strategy or tuple(tuners.OURS))
    elif arguments.what == "report":
        page = tuners.FOLDER.parents[1] / "h200.md"
        record = arguments.file.read_text()
        page.with_suffix(".json").write_text(record)
        page.write_text(tuners.make_page(json.loads(record)))
    elif arguments.what == "kernel_tuner":
        tuners.tune_with_kernel_tuner(arguments.out)
    elif arguments.what == "winners":
        tuners.compare_winners(arguments.winner, arguments.out)
    else:
        tuners.tune_with_sweep(arguments.what, arguments.out, resume=arguments.resume)


if __name__ == "__main__":
    main()
