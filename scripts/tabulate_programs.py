"""Write what public programs did on the emulated device into the page, from the recorded runs.

python scripts/tabulate_programs.py [--runs profiles/emulator/programs.json] [--page docs/programs.md]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from device.programs.page import fill_page, read_runs, render_page

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Fill the page between its markers; ends with a message where runs or markers are not as they should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=ROOT / "profiles/emulator/programs.json")
    parser.add_argument("--page", type=Path, default=ROOT / "docs/programs.md")
    args = parser.parse_args()
    try:
        args.page.write_text(fill_page(args.page.read_text(), render_page(*read_runs(args.runs))))
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
