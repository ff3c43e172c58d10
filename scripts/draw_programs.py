"""Draw programs from a local clone of a public collection, to be run by scripts/run_programs.py.

python scripts/draw_programs.py CLONE OUT --name owner/collection --pattern 'src/*-cuda' --count 40 --seed 1 --shared src/include
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from device.programs.draw import draw_programs


def main() -> int:
    """Draw, write the sources below OUT, and print what was drawn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", type=Path, help="a clone, bare or not")
    parser.add_argument("out", type=Path, help="the folder to write to")
    parser.add_argument("--name", required=True, help="the repository's public name")
    parser.add_argument("--pattern", default="*", help="glob of the folders to draw from; a * does not span a /")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shared", action="append", default=[], help="a folder that comes with them; repeatable")
    args = parser.parse_args()
    draw = draw_programs(args.clone, args.name, args.pattern, args.count, args.seed, args.out, shared=args.shared)
    print(f"{draw.repository} at {draw.commit}, seed {draw.seed}: {len(draw.folders)} folders")
    print("\n".join(draw.folders))
    return 0


if __name__ == "__main__":
    sys.exit(main())
