"""What selections and calls cost on a host without a GPU: the project's benchmarks, their figures kept."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TESTS = ("tests/aicf/test_selection_cost.py", "tests/aicf/test_call_cost.py")
COMMAND = f"pytest {' '.join(TESTS)} --benchmark-enable --benchmark-only"


def measure_host() -> dict[str, Any]:
    """Run the benchmarks and return median, least and quartiles in microseconds, with processor, Python and commit."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        words = [*TESTS, "--benchmark-enable", "--benchmark-only", f"--benchmark-json={path}", "-q"]
        subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT, check=True)
        found = json.loads(path.read_text())
    machine = found["machine_info"]
    facts = {"processor": machine["cpu"]["brand_raw"], "python": machine["python_version"], "torch": version("torch"), "command": COMMAND}
    rows = {
        each["name"].split("[")[0]: {key: 1e6 * each["stats"][key] for key in ("median", "min", "q1", "q3")} for each in found["benchmarks"]
    }
    return {"facts": facts | {"commit": found["commit_info"]["id"]}, "benchmarks_us": rows}
