"""The package as users have it: a wheel, installed from the registry that pip is configured for, outside of the checkout."""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

import pytest

from tests.installed.environment import NATIVE, ROOT, Environment
from tests.installed.pages import write_script
from tests.installed.tour import BESIDE, INSTALL, PAGES

# Of the installed frozen set, by kernels that are installed compiled: eagerly, and on arrays of NumPy.
CALL = """
import numpy as np
import aicf.ops
from aicf import Tensor, functional as F
from aicf.device.toolchain import find_toolchain
table, indices = np.arange(8, dtype=np.float32).reshape(4, 2), np.array([3, 0], np.int64)
rows = F.embedding(Tensor(table, backend="cuda"), Tensor(indices, backend="cuda"))
np.testing.assert_array_equal(rows.numpy(), table[indices])
np.testing.assert_array_equal(aicf.ops.embedding(table, indices), table[indices])
try:
    find_toolchain()
except Exception as error:
    print("no compiler:", error)
"""


@pytest.mark.slow
def test_the_pages_from_the_wheel_to_a_library_and_a_trained_plan(tmp_path: Path) -> None:
    fresh = Environment.make(tmp_path / "venv")
    # By the tools that built the checkout: another place of theirs would have all of it compiled again.
    here = ("--no-build-isolation", "-C", "build-dir=build/{wheel_tag}", *NATIVE)
    fresh.run("pip", "--python", sys.executable, "wheel", "--quiet", "--no-deps", *here, "-w", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("aicf-*.whl")
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {t for t in tops if not t.endswith(".dist-info")} == {"aicf", "aicf_emulator"}
    fresh.run(sys.executable, ROOT / "scripts" / "pack_kernels.py", "--out", tmp_path, "embedding", cwd=tmp_path)
    (kernels,) = tmp_path.glob("aicf_kernels-*.whl")
    fresh.install(wheel, kernels, cwd=tmp_path)
    assert "no compiler: " in fresh.run("python", "-c", CALL, cwd=tmp_path, path="/nowhere")

    fresh.install(f"{wheel}[workbench]", cwd=tmp_path)
    told = fresh.run("aicf", "--version", cwd=tmp_path)
    assert "toolchain: nvcc 13.0" in told and "x86-64-v" in told and "frozen set: format 1" in told
    assert "run `aicf init`" in fresh.run("aicf", "bench", "softmax", cwd=tmp_path, code=2)

    minutes, way, sanitizer = (write_script(page, frozenset({INSTALL})) for page in PAGES)
    told = fresh.run("bash", "-c", minutes, cwd=tmp_path)
    assert "4 of 4 variants verified" in told and "scale_shift" in told
    project = tmp_path / "my-kernels"
    told = fresh.run("bash", "-c", way, cwd=project)
    assert "1 of 1 buckets changed" in told and "0 findings" in told and "[[0.25" in told and " launches\n" in told
    assert (project / "frozen" / "scale_shift" / "index.jsonl").is_file()
    assert "aicf_scale_shift(" in (project / "build" / "prefix" / "include" / "aicf_kernels.h").read_text()
    assert list((project / "build" / "prefix").glob("lib*/libaicf_kernels.a"))
    for command in BESIDE:
        fresh.run("bash", "-c", command, cwd=project)

    told = fresh.run("bash", "-c", sanitizer, cwd=tmp_path)
    assert re.search(r"Invalid read of size 4 bytes in global memory\n=+ +at sum\.cu:6 ", told)
    assert re.search(r"Race in shared memory \(read after write\).*\n.*\n.*\n=+ +at sum\.cu:8 ", told)
