"""New ops of every kind: whole, in the project's style, right on the emulated device, and with domains that say what the launcher says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from device import Device
from device.settings import find_project_root
from device.toolchain import find_toolchain
from harness.build.binding import build_binding, open_variant
from harness.build.builder import build_op
from harness.discover import LoadedOp, find_op
from harness.freezing.gates.domain import find_disagreement
from harness.model.launches import examine_launch
from harness.scaffold import KindName, create_op
from harness.targets import find_target
from harness.verify.judge import Verifier
from harness.verify.plan import Effort

ROOT = find_project_root()


def make_op(folder: Path, kind: KindName) -> LoadedOp:
    """Write an op into an ops folder of the test's own, which has the shared sources."""
    ops = folder / "ops"
    ops.mkdir()
    (ops / "common").symlink_to(ROOT / "ops" / "common")
    create_op(f"new_{kind}", kind, ops)
    return find_op(f"new_{kind}", ops)


# One of them is written by the fast tests; the slow ones write, compile and prove all.
KINDS = [pytest.param(kind, marks=[pytest.mark.slow] * (kind is not KindName.ELEMENTWISE), id=str(kind)) for kind in KindName]


@pytest.fixture(scope="module", params=KINDS)
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedOp:
    return make_op(tmp_path_factory.mktemp("new"), request.param)


@pytest.fixture(scope="module")
def emulated(emulated_device: Device) -> Device:
    return emulated_device


@pytest.mark.slow
def test_a_new_op_is_verified_and_counted_on_the_emulated_device(loaded: LoadedOp, emulated: Device) -> None:
    op, toolchain = loaded.op, find_toolchain()
    first = {v.kernel: v for v in reversed(op.variants)}
    chosen = list(first.values())
    builds = build_op(loaded, chosen, toolchain=toolchain, target=find_target("h200"), jobs=2)
    assert [b.error for b in builds] == [None] * len(op.kernels)
    binding = build_binding(loaded, toolchain)
    verifier = Verifier(op, emulated, Effort(num_hidden=2))
    assert verifier.check_op() == ()
    for build in builds:
        assert build.library is not None and build.resources is not None and build.resources.spill_bytes == 0
        launchable = open_variant(op, binding, build.library, build.variant)
        result = verifier.verify(build.variant, launchable)
        assert result.ok, [f.describe() for f in result.all_faults]
        assert all(p.status == "passed" for p in result.problems), "each kernel serves every listed problem"
        domain = op.find_kernel(build.variant.kernel).domain
        assert domain is not None and find_disagreement(op, domain(build.variant.tunables), launchable) == ""
        facts = examine_launch(emulated, op, op.select_problems("emulated")[0], launchable)
        assert facts.counters and not facts.reason


def test_a_new_op_has_problems_for_every_use_and_a_domain_per_kernel(loaded: LoadedOp) -> None:
    op = loaded.op
    assert all(op.select_problems(suite) for suite in ("verify", "emulated", "bench"))
    assert {p.attributes["act"] for p in op.select_problems("verify")} == {"relu", "none"}
    for variant in op.variants:
        kernel = op.find_kernel(variant.kernel)
        assert kernel.domain is not None and all(c.holds(op.find_facts(p)) for c in kernel.domain(variant.tunables) for p in op.problems)
    readme = (loaded.folder / "README.md").read_text()
    assert all(f"| `{k.name}` | {k.idea} |" in readme for k in op.kernels)


def test_a_new_op_is_in_the_projects_style(loaded: LoadedOp) -> None:
    texts = {path.name: path.read_text() for path in loaded.folder.iterdir()}
    assert "@" not in "".join(text for name, text in texts.items() if not name.endswith(".py"))
    assert "@{" not in "".join(texts.values()) and "@%" not in "".join(texts.values())
    if find_spec("ruff") is None:
        pytest.skip("ruff is not installed in this environment")
    # As a part of the project: imports are sorted by what belongs to it.
    place = ROOT / "ops" / f".{loaded.folder.name}"
    shutil.copytree(loaded.folder, place)
    try:
        for arguments in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
            done = subprocess.run([sys.executable, "-m", "ruff", *arguments, str(place)], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout
    finally:
        shutil.rmtree(place)
    style = f"--style=file:{ROOT / '.clang-format'}"
    formatter = Path(sys.executable).with_name("clang-format")
    if not formatter.exists():
        pytest.skip("clang-format is not installed in this environment")
    sources = [str(path) for path in loaded.folder.iterdir() if path.suffix in (".cu", ".hpp", ".cpp")]
    done = subprocess.run([str(formatter), style, "--dry-run", "--Werror", *sources], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
