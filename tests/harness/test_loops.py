"""A kernel that never ends is refused within seconds, with the line of its loop; one that only takes long is not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from device import Device
from device.settings import find_project_root
from device.toolchain import find_toolchain
from harness.benchmark.workers import Job, WorkerSetup, verify_variants
from harness.build.binding import build_binding
from harness.build.builder import build_op
from harness.build.store import Store
from harness.discover import find_op
from harness.scaffold import create_op
from harness.targets import find_target
from harness.verify.findings import FaultKind
from harness.verify.loops import find_loop_limit
from harness.verify.plan import Effort

_STEP = "    float z = 0.0f;\n    for (int k = 0; k != 7; k += STEP) z += a.x[k % a.n];\n"


@pytest.mark.slow
def test_an_endless_loop_is_a_timeout_with_kernel_line_block_and_thread(emulated_device: Device, tmp_path: Path) -> None:
    ops = tmp_path / "ops"
    ops.mkdir()
    (ops / "common").symlink_to(find_project_root() / "ops" / "common")
    create_op("loops", ops_dir=ops)
    source = ops / "loops" / "kernels.cu"
    body = "    if (i < a.n) a.y[i] = finish<with_relu>(fmaf(a.x[i], a.scale[i], a.shift[i]));"
    text = source.read_text()
    assert body in text
    # Two in each step never meet the odd end; `z` is used, so that the loop is not left out.
    source.write_text(text.replace(body, _STEP.replace("STEP", "2") + body.replace("a.shift[i])", "a.shift[i]) + z * 0.0f")))
    loaded, store = find_op("loops", ops), Store(tmp_path / "cache")
    (variant,) = loaded.op.select_variants(["scalar/threads128"])
    (build,) = build_op(loaded, [variant], toolchain=find_toolchain(), target=find_target("h200"), jobs=1, store=store)
    assert build.library is not None, build.error
    setup = WorkerSetup(loaded.folder, build_binding(loaded, find_toolchain(), store=store), "emulated", (), Effort(), 1, "h200")
    began = time.monotonic()
    ((_, result),) = verify_variants(setup, "loops", [Job(variant, build.library)], num_workers=1)
    assert time.monotonic() - began < 60, "a process that says nothing for 120 s is the last resort"
    (fault,) = [f for p in result.problems for f in p.faults]
    assert fault.kind is FaultKind.TIMEOUT, fault
    line = next(n for n, each in enumerate(source.read_text().splitlines(), start=1) if "k != 7" in each)
    assert "A loop that does not end" in fault.detail and f"kernels.cu:{line} (PTX line " in fault.detail
    assert "kernel" in fault.detail and "of block (0,0,0)" in fault.detail and "by thread (0,0,0)" in fault.detail
    assert result.reason.startswith("timeout"), result.reason


def test_the_limit_grows_with_the_problem_and_never_falls_below_what_ends_at_once() -> None:
    op = find_op("gemm_bias_act").op
    limits = {p.name: find_loop_limit(op, p) for p in op.problems}
    costs = {p.name: op.cost(p).flops for p in op.problems}
    assert min(limits.values()) == 1 << 20 and max(limits.values()) == 1 << 26
    assert all(limits[name] >= min(costs[name], 1 << 26) for name in limits), "one thread may do all of a problem's work"
