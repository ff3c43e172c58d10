"""What ``scripts/check_selection.py`` does, and the circumstances that its records carry."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from device import Device, open_device
from device.toolchain import find_toolchain
from harness.discover import find_op
from harness.drawn import seeds
from harness.provenance import find_commit

FOLDER = Path(__file__).resolve().parent
# Of the problems drawn: choices are never judged on those that the models were fitted to.
SEEDS = {"survey": 1, "regret": 2}


def describe(device: Device) -> dict[str, Any]:
    """Return the circumstances of a record."""
    facts = {"device": device.properties.name, "driver": device.properties.driver_version, "toolchain": find_toolchain().identity}
    return {"facts": facts | {"commit": find_commit(FOLDER).sha, "command": " ".join(["python", *sys.argv])}}


def write(path: Path, document: dict[str, Any]) -> None:
    """Write a record."""
    path.write_text(json.dumps(document, indent=1) + "\n")


def run(description: str) -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("overhead", "survey", "adopt", "regret", "recorded", "host", "report"))
    parser.add_argument("op", nargs="?", default="gemm_bias_act")
    parser.add_argument("files", nargs="*", type=Path, help="adopt: files that `survey` wrote")
    parser.add_argument("--arch", default="sm_90a", help="adopt: the architecture that was timed")
    parser.add_argument("--seed", type=int, help=f"of the problems drawn (default: {SEEDS})")
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--budget", type=float, default=120.0, help="seconds after which no further problem is begun")
    arguments = parser.parse_args()
    if arguments.what == "report":
        import page

        (FOLDER / "h200.md").write_text(page.make_page(FOLDER))
        return
    if arguments.what == "adopt":
        import surveying

        from aicf.registry.reading import find_frozen_dir

        print(surveying.adopt(find_frozen_dir(), arguments.op, arguments.files, arguments.arch))
        return
    if arguments.what == "recorded":
        import recorded

        write(FOLDER / f"recorded-regret-{arguments.op}.json", {"op": arguments.op, "rows": recorded.measure_recorded(arguments.op)})
        return
    if arguments.what == "host":
        import host

        write(FOLDER / "host-costs.json", host.measure_host())
        return
    device = open_device("cuda")
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.what == "overhead":
        import overhead

        found = {"selection": overhead.measure_selection(device), "calls": overhead.measure_calls(device)}
        target = arguments.out / "h200-overhead.json"
    else:
        import regret

        seed = arguments.seed if arguments.seed is not None else SEEDS[arguments.what]
        found = regret.measure_regret(device, arguments.op, arguments.problems, seed, arguments.budget)
        target = arguments.out / f"h200-{arguments.what}-{arguments.op}.json"
        print(json.dumps(regret.summarize(found["rows"]), indent=1))
    write(target, describe(device) | found)
    if arguments.what == "survey":
        draw = seeds.POPULATION if find_op(arguments.op).op.population is not None else seeds.NEIGHBOURS
        seeds.note_use(seeds.find_ledger(arguments.op), seeds.SeedUse(seed, draw, "survey", target.name))
