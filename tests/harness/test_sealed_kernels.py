"""Frozen kernels built from their sealed sources, for drawn problems: the right machine code, right results, and no liar among them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from contract.kernels import read_kernel
from contract.layout import find_frozen_dir
from device import Device
from device.toolchain import find_toolchain
from harness.build.binding import build_binding, load_binding
from harness.build.builder import build_op, open_store
from harness.build.sealed import SealedKernels, open_sealed
from harness.compare.drawn.frozen_choice import choose_frozen
from harness.compare.drawn.problems import draw_problems
from harness.discover import LoadedOp, find_op, load_op
from harness.errors import FrozenError
from harness.spec import Problem
from harness.targets import find_target
from harness.timing.ahead import expect
from harness.verify.case import Case

OP = "softmax"
KERNEL = "naive__threads64__7036f2d1"


@pytest.mark.slow
def test_a_sealed_kernel_is_built_once_and_right(device: Device) -> None:
    loaded = find_op(OP)
    load_binding(build_binding(loaded, find_toolchain()))  # of the op as it is: the sealed one's must not be taken for it
    told: list[str] = []
    for _ in range(2):
        ((name, (build, binding, op)),) = SealedKernels(loaded, find_toolchain(), open_store()).build([KERNEL], 1, told.append).items()
    assert name == KERNEL and told == [KERNEL, KERNEL] and build.library is not None and build.resources is not None
    problem = Problem({"rows": 33, "columns": 65}, {}, {"x": 3})
    expected = expect(op, problem)
    assert op is not loaded.op  # it was sealed with an earlier interface, and takes the present one's calls
    with Case(device, loaded.op, problem) as case:
        kernel = open_sealed(loaded.op, op, binding, build)
        case.upload(expected.inputs)
        case.prepare(kernel)
        stream = device.create_stream()
        case.launch(kernel, stream)
        stream.synchronize()
        assert expected.find_wrong(case.read_outputs()) == ""


def test_a_sealed_kernel_launches_what_its_sources_make_of_its_variant() -> None:
    """Wherever they lie, and whatever the entry points are called: a kernel that has not changed is not timed beside itself."""
    ((build, _, _),) = SealedKernels(find_op(OP), find_toolchain(), open_store()).build([KERNEL], 1, lambda _: None).values()
    folder = read_kernel(find_frozen_dir() / OP, KERNEL).sources / OP
    loaded = LoadedOp(load_op(folder), folder)
    (again,) = build_op(loaded, loaded.op.select_variants([build.variant.name]), toolchain=find_toolchain(), target=find_target("h200"))
    assert build.host_hash and (again.code_hash, again.host_hash) == (build.code_hash, build.host_hash)


def test_a_source_that_is_not_what_was_sealed_is_refused(tmp_path: Path) -> None:
    frozen = tmp_path / "frozen"
    shutil.copytree(find_frozen_dir() / OP, frozen / OP)
    source = next(read_kernel(frozen / OP, KERNEL).sources.rglob("kernels.cu"))
    source.write_text(source.read_text() + "// faster\n")
    with pytest.raises(FrozenError, match="is not what was sealed"):
        SealedKernels(find_op(OP), find_toolchain(), open_store(), frozen).build([KERNEL], 1, lambda _: None)


def test_every_frozen_op_has_a_decision_for_what_its_users_bring() -> None:
    for name in ("softmax", "gemm_backward", "gemm_bias_act"):
        op = find_op(name).op
        choices = choose_frozen(op, [d.problem for d in draw_problems(op, 40, 11)], "sm_90a")
        assert all(c.kernel and c.kernel in c.legal for c in choices)
