"""The script that measures rewriting runs as a whole, and tells what it has no right to leave behind."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from device import Device

SCRIPT = Path(__file__).resolve().parents[3] / "profiles" / "rewrite" / "measure.py"


@pytest.mark.slow  # the elementwise chains of scaled updates are compiled
def test_it_measures_every_part_and_cycles_leave_nothing(device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("measure_rewriting", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    module.main(["--tiny", "--page", str(tmp_path / "page.md")])
    found, page = json.loads((tmp_path / "page.json").read_text())["found"], (tmp_path / "page.md").read_text()
    assert found["cycles"]["bytes more"] == 0 and found["cycles"]["graphs more"] == 0
    for row in ("function, largest (exactness)", "trajectory, largest (exactness)", "decisions that differ (repeats)"):
        assert next(line for line in page.splitlines() if line.startswith(f"| {row} |")).endswith("| aim |")
    assert found["repeats"]["decisions"] >= 3 and found["repeats"]["states that differ"] == 0
    assert found["exactness"]["trajectory, deepen"] <= 1e-5 and found["proposals"]["regret"] > 0.0
    assert [module.judge_figure(v, module.BELOW, 0.1, 0.5) for v in (0.1, 0.2, 0.6, float("nan"))] == [
        *("aim", "least", "**missed**", "**missed**")
    ]
    phases = [found["widen"][f"again: {name}, s"] for name in ("start", "carry", "check", "prepare", "exchange", "the first step")]
    assert 0 < sum(phases) <= found["widen"]["again: all, s"] and min(phases) > 0
    assert "| rollback, of a plain copy (moments) |" in page
    assert found["widen"]["kernels compiled in rewrites"] == 0
    # One more array that is kept is seen.
    before = module.count_held()
    held = device.allocate(4096)
    assert module.count_held()[0] == before[0] + 4096
    held.free()
    assert module.count_held() == before
