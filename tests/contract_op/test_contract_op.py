"""An op that needs every feature of the contract at once: its honest kernel passes, and each of its liars is refused.

Scalars, values in device memory, tensors that are overwritten in place, indices, masks, derived sizes, rank 4 with strides of their own; by
the generated checks, binding and entry points.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from device import Device
from device.settings import read_settings
from device.toolchain import find_toolchain
from harness.benchmark.workers import Job, WorkerSetup, share_cores, verify_variants
from harness.build.binding import build_binding
from harness.build.builder import build_op
from harness.freezing.gates.domain import find_disagreement
from harness.records.provenance import find_device_kind
from harness.spec import Launchable, Preparable, Problem, SpecError, Variant
from harness.targets import find_target
from harness.testing import OpUnderTest
from harness.timing.batches import InPlaceLaunch, Mode
from harness.timing.placement import Placements
from harness.verify.case import Case, plan_arguments
from harness.verify.findings import VerifyResult
from harness.verify.inputs import make_inputs
from harness.verify.plan import Effort

UNDER_TEST = OpUnderTest(Path(__file__).parent / "ops" / "blend", has_machine_code=True)
OP = UNDER_TEST.op
HONEST, WIDE = (OP.find_kernel(name).bind(OP.find_kernel(name).variants[0]) for name in ("honest", "only_wide"))
PROBLEM = OP.problems[2]
EFFORT = Effort(num_hidden=4, num_drawn=8, num_large=4, num_launches=64)
# For each liar: the keywords of which one must be what it is refused for.
LIARS = {
    "drops_stride": ("mismatch", "out_of_bounds_read", "uninitialized_read"),
    "drops_last_stride": ("not_written", "out_of_bounds_write", "guard_overwritten"),
    "leaves_state": ("not_written",),
    "default_decay": ("mismatch",),
    "constant_rate": ("mismatch",),
    "first_row": ("mismatch",),
    "ignores_mask": ("mismatch",),
    "ignores_step": ("mismatch",),
    "spoils_index": ("input_modified",),
    "skips_rows": ("not_written",),
}

Open = Callable[[str], Launchable]


@pytest.fixture(scope="module")
def open_kernel(device: Device) -> Open:
    open_variant = UNDER_TEST.open([HONEST, WIDE])
    return lambda kernel: open_variant({"honest": HONEST, "only_wide": WIDE}[kernel])


def test_the_honest_kernel_passes_everything(device: Device, open_kernel: Open, thin: Callable[[Effort], Effort]) -> None:
    problems = UNDER_TEST.verify(device, HONEST, open_kernel("honest"), thin(EFFORT))
    assert all(p.status == "passed" for p in problems if not p.large)
    assert {"sampled", "launches", "determinism", "stale", "capture"} <= {c for p in problems for c in p.checks}
    drawn = [p.problem for p in problems if p.hidden]
    assert any("decay=" in name for name in drawn) and any("order_x=" in name for name in drawn) and any("pad_y=" in name for name in drawn)


def test_supports_is_the_domain(device: Device, open_kernel: Open, by_tier: Callable[[int, int], int]) -> None:
    for kernel, variant in (("honest", HONEST), ("only_wide", WIDE)):
        domain = OP.find_kernel(kernel).domain
        assert domain is not None
        assert find_disagreement(OP, domain(variant.tunables), open_kernel(kernel), num_calls=by_tier(1000, 4000)) == ""


def test_a_tunable_of_another_kernel_is_zero(open_kernel: Open) -> None:
    (row,) = UNDER_TEST.build([WIDE]).values()
    assert "-DAICF_THREADS=0" in row.flags and "-DAICF_DOMAIN=D_C_2_0_1_1_3_4_C_1_3_1_1_0_1" in row.flags


def make_arguments(**changes: Any) -> dict[str, Any]:
    return plan_arguments(OP, PROBLEM) | changes


@pytest.mark.parametrize(
    ("name", "changes", "error", "text"),
    [
        ("decay", {"decay": "0.5"}, TypeError, "decay: expected a float, got str"),
        ("decay", {"decay": True}, TypeError, "decay: expected a float, got bool"),
        ("decay", {"decay": 1.5}, ValueError, "decay = 1.5: must be from 0 to 1"),
        ("decay", {"decay": float("nan")}, ValueError, "decay = nan: must be from 0 to 1"),
        ("step", {"step": 4}, ValueError, "step: expected one of 1, 2, 3, got 4"),
        ("step", {"step": True}, TypeError, "step: expected an int, got bool"),
        ("step", {"step": 1}, ValueError, r"P = 5: must be \(S - R\) // step \+ 1 = 9"),
        ("rate", {"rate": None}, TypeError, "rate: expected a device array"),
        ("dtype", {"x": plan_arguments(OP, PROBLEM)["index"]}, TypeError, "x: expected a dtype of <f4, <V2, got <i8"),
        ("unknown", {"gain": 1.0}, TypeError, "gain: unknown argument; there are: x, w, table"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(
    device: Device, open_kernel: Open, name: str, changes: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        open_kernel("honest").supports(**make_arguments(**changes))


class View:
    """A device array that is nothing but its description."""

    def __init__(self, like: Any, **changes: Any) -> None:
        self.__cuda_array_interface__ = dict(like.__cuda_array_interface__) | changes


def test_strides_that_fold_and_arrays_that_overlap_are_refused(device: Device, open_kernel: Open) -> None:
    supports = open_kernel("honest").supports
    arguments = make_arguments()
    x, state, y = (arguments[n] for n in ("x", "state", "y"))
    assert supports(**arguments) == ""
    with pytest.raises(ValueError, match="x: stride 8 of dimension 2 lays elements over each other"):
        supports(**arguments | {"x": View(x, strides=(2048, 32, 32, 4))})
    with pytest.raises(ValueError, match=r"state: expected contiguous rows \(last stride 1 element\)"):
        supports(**arguments | {"state": View(state, strides=(4, 8, 64, 2048))})
    with pytest.raises(ValueError, match="y: expected memory of its own, got an array that overlaps state"):
        supports(**arguments | {"y": View(y, data=(state.__cuda_array_interface__["data"][0] + 64, False))})
    # Parts of one matrix's rows are woven into each other, and share nothing.
    wide = (3 * 5 * 16 * 4, 5 * 16 * 4, 16 * 4, 4)
    address = state.__cuda_array_interface__["data"][0]
    woven = arguments | {"state": View(state, strides=wide), "y": View(y, strides=wide, data=(address + 32, False))}
    assert supports(**woven) == ""
    with pytest.raises(ValueError, match="overlaps state"):
        supports(**woven | {"y": View(y, strides=wide, data=(address + 28, False))})


def test_a_prepared_launch_does_the_same_each_time(device: Device, open_kernel: Open) -> None:
    launchable = open_kernel("honest")
    assert isinstance(launchable, Preparable)
    inputs = make_inputs(OP, PROBLEM)
    stream = device.create_stream(non_blocking=True)
    with Case(device, OP, PROBLEM) as case:
        case.prepare(launchable)
        with pytest.raises(TypeError, match="prepare: keyword argument 'stream' is missing"):
            launchable.prepare(workspace=0, **case.arguments)
        with pytest.raises(TypeError, match="gain: unknown argument"):
            launchable.prepare(workspace=0, stream=0, gain=1.0, **case.arguments)
        case.upload(inputs)
        case.launch(launchable, stream)
        stream.synchronize()
        expected = {name: values.tobytes() for name, values in case.read_outputs().items()}
        queue = case.bind(launchable, stream)
        del launchable
        for _ in range(2):
            case.upload(inputs)
            queue()
            stream.synchronize()
            assert {name: values.tobytes() for name, values in case.read_outputs().items()} == expected


def test_c_callers_are_told_what_is_wrong(device: Device, open_kernel: Open) -> None:
    class Status(ctypes.Structure):
        _fields_ = (("code", ctypes.c_int32), ("cuda_code", ctypes.c_int32), ("reason", ctypes.c_char * 248))

    (built,) = UNDER_TEST.build([HONEST]).values()
    supports = getattr(ctypes.CDLL(str(built.library)), f"blend_supports__{HONEST.symbol_suffix}")
    supports.restype = Status
    # All zero: 8 pointers, 7 sizes, 11 strides, a float and two codes.
    status = supports(ctypes.create_string_buffer(8 * 26 + 16))
    assert (status.code, status.reason) == (2, b"B = 0: must be at least 1")


def test_a_launch_in_place_is_put_back_before_each_sample(device: Device, open_kernel: Open) -> None:
    inputs = make_inputs(OP, PROBLEM)
    stream = device.create_stream(non_blocking=True)
    with Placements(device, OP, PROBLEM, num_places=2) as places:
        places.upload(inputs)
        places.prepare(open_kernel("honest"))
        launch = places.choose(open_kernel("honest"), Mode.COLD)
        assert isinstance(launch, InPlaceLaunch)
        for _ in range(4):  # two places, each for the second time
            launch.restore(stream)
            launch(stream)
        stream.synchronize()
        first = places.read_outputs()["state"]
    with Case(device, OP, PROBLEM) as case:
        case.upload(inputs)
        case.launch(open_kernel("honest"), stream)
        stream.synchronize()
        np.testing.assert_array_equal(first, case.read_outputs()["state"])


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"scalars": {"decay": 2.0}}, "decay=2.0 is not from 0.0 to 1.0"),
        ({"scalars": {"gain": 1.0}}, "unknown scalar gain"),
        ({"padding": {"w": 1}}, "tensor w cannot have padded rows"),
        ({"padding": {"x": (1, 0)}}, "padding x="),
        ({"orders": {"x": (0, 1, 3, 2)}}, "elements of its last dimension must be neighbours"),
        ({"orders": {"table": (1, 0)}}, "order table="),
        ({"sizes": {"B": 1, "H": 1, "S": 3, "D": 1, "V": 1, "R": 2, "P": 9}}, "contradicts the op's ties, which ask for P=1"),
    ],
)
def test_a_problem_that_cannot_be_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        OP.check_problem(Problem(**({"sizes": PROBLEM.sizes, "attributes": PROBLEM.attributes} | changes)))


@pytest.fixture(scope="module")
def verdicts(device: Device) -> dict[str, VerifyResult]:
    variants = OP.select_variants(list(LIARS))
    toolchain, settings = find_toolchain(), read_settings()
    builds = build_op(UNDER_TEST.loaded, variants, toolchain=toolchain, target=find_target(settings.target))
    jobs = [Job(b.variant, b.library) for b in builds if b.library]
    assert len(jobs) == len(LIARS), [b.error for b in builds]
    kind = find_device_kind(device)
    num_workers, threads = share_cores(len(jobs), settings.jobs, kind)
    binding = build_binding(UNDER_TEST.loaded, toolchain)
    setup = WorkerSetup(UNDER_TEST.loaded.folder, binding, kind, emulator_workers=threads, effort=EFFORT)
    return {job.variant.kernel: result for job, result in verify_variants(setup, OP.name, jobs, num_workers=num_workers)}


@pytest.mark.slow  # ten variants are compiled, and a worker process is lost with most of them
@pytest.mark.parametrize("liar", LIARS)
def test_a_liar_is_refused(verdicts: dict[str, VerifyResult], liar: str) -> None:
    found = verdicts[liar]
    assert not found.ok
    assert {f.kind.value for f in found.all_faults} & set(LIARS[liar]), [f.describe() for f in found.all_faults]


MEANS = OpUnderTest(Path(__file__).parent / "ops" / "row_mean")


@pytest.mark.slow
@pytest.mark.parametrize("variant", MEANS.op.variants, ids=lambda v: v.name)
def test_rows_and_elements_of_ops_common(device: Device, variant: Variant) -> None:
    problems = MEANS.verify(device, variant, MEANS.open([variant])(variant), Effort(num_hidden=2, num_drawn=9, num_launches=64))
    assert all(p.status == "passed" for p in problems)
