"""The whole road without a GPU: a new variant is verified, promoted, rebuilt from its seal, deployed, run from C++, and rolled back.

It is walked in a copy of the project, whose frozen set may change.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from device.loader import find_emulator_library
from device.settings import read_settings
from device.toolchain import find_toolchain

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("contract", "deploy", "device", "examples", "frozen", "harness", "ops")
NEW = "row_in_registers/threads32_rows4_vectors2"
BUCKET = "sm_90a/any/any/any/short_rows"


@dataclass(frozen=True)
class Project:
    """A checkout of its own."""

    root: Path
    state: Path

    def run(self, *command: object, code: int = 0) -> str:
        environ = os.environ | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": f"{self.root}:{self.state}",
            "AICF_DEVICE": "emulated",
            "AICF_EMULATOR_LIBRARY": str(find_emulator_library(read_settings())),
            "AICF_CACHE_DIR": str(read_settings().cache_dir),
            "AICF_RECORDS_URL": f"sqlite:///{self.state}/records.sqlite",
        }
        done = subprocess.run([str(c) for c in command], cwd=self.root, env=environ, capture_output=True, text=True, timeout=300)
        assert done.returncode == code, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def harness(self, *words: object, code: int = 0) -> str:
        return self.run(sys.executable, "-m", "harness", *words, code=code)

    def commit(self) -> None:
        self.run("git", "add", "-A")
        self.run("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a change")

    def find_holder(self) -> dict[str, Any]:
        rows = json.loads(self.harness("frozen", "list", "softmax", "--json"))["softmax"]
        return next(r for r in rows if r["bucket"]["region"] == "short_rows")


@pytest.fixture
def project(emulated_device: object, tmp_path: Path) -> Project:
    root = tmp_path / "project"
    ignored = shutil.ignore_patterns("emulator", "__pycache__", ".*")
    for part in PARTS:
        shutil.copytree(ROOT / part, root / part, ignore=ignored)
    for name in ("pyproject.toml", ".gitignore"):
        shutil.copyfile(ROOT / name, root / name)
    # An editable install finds its own checkout before any path; this project is to use the copy.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != 'ScikitBuildRedirectingFinder']\n"
    )
    project = Project(root, tmp_path)
    project.run("git", "init", "-q")
    project.commit()
    return project


@pytest.mark.slow
def test_the_road_from_a_new_variant_to_a_cpp_program_and_back(project: Project) -> None:
    spec = project.root / "ops" / "softmax" / "op.py"
    listed = "        (*_SHARES, *_LONG_SHARES, *_MORE_SHARES),\n"
    added = '(*_SHARES, *_LONG_SHARES, *_MORE_SHARES, {"threads": 32, "rows": 4, "vectors": 2}),'
    assert spec.read_text().count(listed) == 1
    spec.write_text(spec.read_text().replace(listed, f"        {added}\n"))
    project.harness("verify", "softmax", "--variant", NEW)
    before = project.find_holder()["kernel"]
    # Measured on a GPU: nothing provisional takes its place.
    project.harness("frozen", "demote", "softmax", "--bucket", BUCKET, "-m", "a test")

    # A tree with changes is refused.
    told = project.harness("promote", "softmax", "--variant", NEW, "--bucket", BUCKET, code=1)
    assert "REFUSED  clean tree: 1 files differ from the commit" in told and "pass     sealed:" in told
    project.commit()

    told = project.harness("promote", "softmax", "--variant", NEW, "--bucket", BUCKET)
    assert "provisional: the emulated device has no times" in told and "REFUSED" not in told
    holder = project.find_holder()
    kernel = holder["kernel"]
    assert kernel.startswith("row_in_registers__threads32_rows4_vectors2__") and holder["status"] == "provisional"
    # What was verified before the commit is no evidence: it was verified again, and the commit that is named holds the new variant.
    manifest = json.loads((project.root / "frozen" / "softmax" / "kernels" / f"{kernel}.json").read_text())
    assert added in project.run("git", "show", f"{manifest['verified']['commit']}:ops/softmax/op.py")
    told = project.harness("frozen", "verify", "softmax", "--kernel", kernel)
    assert f"softmax/{kernel}: rebuilt to the same machine code, and right" in told and "0 findings" in told

    # A hand edit is found, named, and in the way of everything else.
    revision = f"revisions/{manifest['revision'][:16]}"
    source = project.root / "frozen" / "softmax" / revision / "sources" / "softmax" / "kernels.cu"
    text = source.read_text()
    source.write_text(text + "// faster\n")
    told = project.harness("frozen", "verify", "softmax", "--quick", code=1)
    assert f"softmax/{revision}/sources/softmax/kernels.cu: changed: it is not the source that was sealed" in told
    assert f"it is not the source that was sealed; {kernel} is made of it; nothing was changed" in project.harness(
        "frozen", "demote", "softmax", "--all", code=1
    )
    source.write_text(text)

    assert_deployed(project, kernel)

    (*_, earlier, _, last) = json.loads(project.harness("frozen", "history", "softmax", "--json"))
    assert [r["kernel"] for r in last["added"] if r["kind"] == "entry"] == [kernel]
    assert f"- {BUCKET}: {kernel}" in project.harness("frozen", "rollback", "softmax", "--to", earlier["name"], "-m", "a test")
    assert project.find_holder()["kernel"] == before
    assert "0 findings" in project.harness("frozen", "verify", "softmax", "--quick")


def assert_deployed(project: Project, kernel: str) -> None:
    """Deploy what the example calls, and see it choose the new kernel and compute what is expected."""
    build, prefix, example = (project.state / name for name in ("build", "prefix", "example"))
    words = [f"-DCMAKE_INSTALL_PREFIX={prefix}", f"-DPython3_EXECUTABLE={sys.executable}", f"-DAICF_NVCC={find_toolchain().nvcc}"]
    project.run("cmake", "-S", "deploy", "-B", build, "-G", "Ninja", *words, f"-DAICF_KERNELS={kernel};naive__bm16*")
    project.run("ninja", "-C", build, "install")
    project.run("cmake", "-S", "examples/cpp_mlp", "-B", example, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    project.run("ninja", "-C", example)
    told = project.run(sys.executable, "-m", "device", "run", example / "cpp_mlp", "examples/cpp_mlp/expected.txt")
    assert f"softmax  {kernel} (by estimate)" in told and "2048 values, the worst off by" in told
