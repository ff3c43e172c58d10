"""What ``scripts/check_selection.py`` does, and the circumstances that its records carry."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from device import Device, open_device
from device.toolchain import find_toolchain
from harness.provenance import find_commit

FOLDER = Path(__file__).resolve().parent


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
    parser.add_argument("what", choices=("overhead", "regret", "recorded", "host", "report"))
    parser.add_argument("op", nargs="?", default="gemm_bias_act")
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--budget", type=float, default=120.0, help="seconds after which no further problem is begun")
    arguments = parser.parse_args()
    if arguments.what == "report":
        import page

        (FOLDER / "h200.md").write_text(page.make_page(FOLDER))
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

        found = regret.measure_regret(device, arguments.op, arguments.problems, 1, arguments.budget)
        target = arguments.out / f"h200-regret-{arguments.op}.json"
        print(json.dumps(regret.summarize(found["rows"]), indent=1))
    write(target, describe(device) | found)
