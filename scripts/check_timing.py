"""Puts the timing to the test on a GPU: false and missed verdicts, the same bench in fresh processes, and what other timers say.

python scripts/check_timing.py contests --out FOLDER     kernels against themselves, and against one that is 1 % slower
python scripts/check_timing.py repeat --out FOLDER       the same bench in five fresh processes
python scripts/check_timing.py places --out FOLDER       short launches at many places of data, code and streams, in five fresh processes
python scripts/check_timing.py agree --out FOLDER        Triton's do_bench and NVBench on the same launches
python scripts/check_timing.py report FOLDER             profiles/timing/h200.md, from the files in FOLDER
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "profiles" / "timing"))

import benches
import contests
import page
import places

FOLDER = Path(__file__).resolve().parents[1] / "profiles" / "timing"


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("contests", "repeat", "places", "place", "agree", "report"))
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--out", type=Path, default=Path("build/timing"))
    parser.add_argument("--same", type=int, default=70, help="contests of each kernel with itself")
    parser.add_argument("--planted", type=int, default=60, help="contests of each kernel of 50 us with one that is 1 %% off")
    arguments = parser.parse_args()
    if arguments.what == "report":
        for name in page.FILES:
            if (arguments.folder / f"{name}.json").is_file():
                shutil.copyfile(arguments.folder / f"{name}.json", FOLDER / f"h200-{name}.json")
        (FOLDER / "h200.md").write_text(page.make_report(FOLDER))
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.what == "contests":
        contests.run_contests(arguments.out, arguments.same, arguments.planted)
    else:
        steps = {"repeat": benches.run_repeat, "agree": benches.run_agree, "places": places.run_places, "place": places.run_place}
        steps[arguments.what](arguments.out)


if __name__ == "__main__":
    main()
