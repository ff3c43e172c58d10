"""Put the drawn problems of all ops on one page, worst first, with a picture: ``tabulate_drawn.py profiles/ops/h200.md``.

Ops without a published record, or whose newest one is of another GPU than the page's, are named as left out. Nothing is measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from contract.files import write_atomically
from harness.compare.drawn.record import find_record, read_runs
from harness.discover import find_op, find_ops
from harness.report.overview import OpStanding, find_standing, make_overview
from harness.report.pictures.overview import draw_overview
from harness.targets import Target, find_target


def find_standings(target: Target) -> Iterator[OpStanding]:
    """Yield the ops with a published record of that GPU, in the order of their names."""
    records = {name: read_runs(find_record(name, published=True)) for name in sorted(find_ops())}
    of_target = {name: [r for r in runs if r.environment["target"] == target.name] for name, runs in records.items()}
    # A run of an earlier version timed no copies: the newest that were timed on such a GPU stand for its own.
    newest = max((r for runs in of_target.values() for r in runs if r.copies), key=lambda r: r.started, default=None)
    for name, runs in of_target.items():
        if runs:
            yield find_standing(find_op(name).op, runs, target, newest.copies if newest else ())


def main() -> None:
    """Write the page, and the picture beside it; say which ops have no record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("page", type=Path, help="a Markdown file, named after the GPU")
    page = parser.parse_args().page
    found = list(find_standings(find_target(page.stem)))
    picture = page.with_suffix(".svg")
    page.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(picture, draw_overview(found, f"What users get on drawn problems, {page.stem.upper()}"))
    write_atomically(page, make_overview(found, picture.name, f"python scripts/tabulate_drawn.py profiles/ops/{page.name}"))
    left_out = sorted(set(find_ops()) - {each.op.name for each in found})
    print(f"{page}: {sum(len(each.standings) for each in found)} problems of {len(found)} ops; no record: {', '.join(left_out) or 'none'}")


if __name__ == "__main__":
    main()
