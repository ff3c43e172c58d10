"""Copy the short list of an op's published H200 figures into the op's README, between its generated markers.

python scripts/fill_readme.py gemm_bias_act
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MARKERS = re.compile(r"(<!-- generated:bench -->\n).*?(<!-- /generated:bench -->)", re.DOTALL)


def main() -> None:
    """Rewrite ``ops/<op>/README.md``; ends with a message when a page or its markers are missing."""
    if len(sys.argv) != 2:
        sys.exit("usage: python scripts/fill_readme.py OP")
    page = ROOT / "profiles" / sys.argv[1] / "h200.md"
    readme = ROOT / "ops" / sys.argv[1] / "README.md"
    for path in (page, readme):
        if not path.is_file():
            sys.exit(f"{path} is missing")
    text = readme.read_text()
    if not MARKERS.search(text):
        sys.exit(f"{readme} has no generated:bench markers")
    place, _, rest = page.read_text().partition("\n")
    where = place.split(" Rates at")[0]
    summary = f"{where} Cold medians; every variant is in [profiles](../../profiles/{sys.argv[1]}/h200.md).\n\n"
    summary += rest[rest.index("Fastest variant per problem:") :].strip() + "\n"
    readme.write_text(MARKERS.sub(lambda m: f"{m[1]}{summary}{m[2]}", text))


if __name__ == "__main__":
    main()
