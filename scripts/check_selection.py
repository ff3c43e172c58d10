"""What selections and calls from Python cost on the host; the records are pictured by ``python -m harness survey report``.

python scripts/check_selection.py overhead --out FOLDER   beside PyTorch's own calls, on a GPU
python scripts/check_selection.py host                    the project's benchmarks, without a GPU
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "profiles" / "selection"))

import host
import overhead

from device import open_device
from device.toolchain import find_toolchain
from harness.records.provenance import find_commit

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "profiles" / "selection"


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("overhead", "host"))
    parser.add_argument("--out", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.what == "host":
        name, document = "host-costs.json", host.measure_host()
    else:
        device = open_device("cuda")
        facts = {"device": device.properties.name, "driver": device.properties.driver_version, "toolchain": find_toolchain().identity}
        facts |= {"commit": find_commit(ROOT).sha, "command": " ".join(["python", *sys.argv])}
        found = {"selection": overhead.measure_selection(device), "calls": overhead.measure_calls(device)}
        name, document = "h200-overhead.json", {"facts": facts} | found
    (arguments.out / name).write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
