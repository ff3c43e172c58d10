"""A saved plan runs with no pass, no selection and no compiler where the cache holds its kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.errors import SelectionError
from device import Device

ROOT = Path(__file__).resolve().parents[3]
X, Y = np.random.default_rng(4).normal(size=(8, 16)).astype(np.float32), np.arange(8) % 4

# Runs in a process of its own, where deciding and starting programs raise.
LOADING = """
import json, subprocess, sys, time
import numpy as np
import contract.decision
import aicf
from aicf.backends.frozen import FrozenCalls
from aicf.registry import selection
from contract.decision import DecisionCore

def refuse(*arguments, **options):
    raise AssertionError(f"called with {arguments}")

contract.decision.load_core()
begin = time.perf_counter()
selection.read_op = FrozenCalls.find = FrozenCalls.find_sealed = refuse
DecisionCore.decide = subprocess.Popen.__init__ = subprocess.run = refuse
step = aicf.load(sys.argv[1])
rng = np.random.default_rng(4)
x, y = rng.normal(size=(8, 16)).astype(np.float32), np.arange(8) % 4
losses = [step(x, y).item() for _ in range(3)]
train = tuple(f"aicf.train.{name}" for name in ("building", "compiling", "recipe", "step_recipe"))
makers = ("aicf.passes", "aicf.frontends", *train, "aicf.runtime.chooser")
made = [name for name in sys.modules if name.startswith(makers)]
print(json.dumps({"losses": losses, "made": made, "seconds": time.perf_counter() - begin}))
"""


def test_a_saved_step_needs_no_pass_no_selection_and_no_compiler(device: Device, tmp_path: Path) -> None:
    aicf.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = optim.Adam(model.parameters(), lr=optim.linear(1e-2, total=9))
    batch = (Tensor(X), Tensor(Y))
    step = aicf.compile_step(model, lambda m, x, y: F.cross_entropy(m(x), y), optimizer, batch, backend="cuda")
    step.save(tmp_path)
    expected = [step(X, Y).item() for _ in range(3)]
    # A chain that is not frozen is named too, by its engine and itself.
    assert any(s.op == "elementwise" for s in step.plan.steps)
    environ = os.environ | {"AICF_DEVICE": "emulated" if device.is_emulated else "cuda"}
    command = [sys.executable, "-c", LOADING, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["losses"] == expected
    assert found["made"] == []
    # Another plan than the one that the launches were saved with is asked for kernel by kernel.
    plan = (tmp_path / "plan.json").read_text()
    (tmp_path / "plan.json").write_text(plan.replace(step.plan.steps[0].seal, "0" * 64))
    with pytest.raises(SelectionError, match="seal 0000000000000000"):
        aicf.load(tmp_path)
    print(f"loaded and run three times in {found['seconds']:.2f} s")
