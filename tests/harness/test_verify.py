"""The judge against Python kernels on the fake device: the honest one passes, each liar is refused for its own reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from device.interface import DeviceError
from device.observer import Report
from harness.spec import Op, Problem, Sampling
from harness.verify.findings import FaultKind, Status, VerifyResult
from harness.verify.judge import Verifier
from harness.verify.plan import Effort
from harness.verify.repeating import limit_launches, shrink
from harness.verify.schedules import make_schedules
from tests.harness.fake_device import FakeArray, FakeDevice
from tests.harness.toy_op import ToyKernel, _compute, honest, make_toy


def verify(device: FakeDevice, launchable: ToyKernel, op: Op | None = None, kernel: str = "honest") -> VerifyResult:
    op = op or make_toy()
    return Verifier(op, device).verify(op.select_variants([kernel])[0], launchable)


def test_honest_kernel_passes_every_check_and_frees_its_memory() -> None:
    device = FakeDevice()
    result = verify(device, ToyKernel(device))
    assert result.ok, [f.describe() for f in result.all_faults]
    assert result.complete
    assert [p.status for p in result.problems] == [Status.PASSED] * len(result.problems)
    assert set(result.problems[0].checks) == {"result", "guards", "determinism", "stale", "capture"}
    assert sum(p.hidden for p in result.problems) == 4
    assert 0 <= result.max_error_ratio <= 1
    assert device.num_live == 0


def write_nothing(**_: Any) -> None:
    pass


def skip_last_row(Y: FakeArray, **rest: Any) -> None:
    Y.host[:-1] = _compute(**rest)[:-1]


def ignore_bias(bias: FakeArray | None, Y: FakeArray, **rest: Any) -> None:
    Y.host[...] = _compute(bias=None, **rest)


def modify_input(A: FakeArray, B: FakeArray, bias: FakeArray | None, Y: FakeArray, relu: bool) -> None:
    honest(A, B, bias, Y, relu)
    A.host[0, 0] += 1


def write_past_end(A: FakeArray, B: FakeArray, bias: FakeArray | None, Y: FakeArray, relu: bool) -> None:
    honest(A, B, bias, Y, relu)
    end = Y.host.__array_interface__["data"][0] - Y.owner.host.ctypes.data + Y.span_bytes
    Y.owner.host[end : end + 4] = 0


def write_row_padding(A: FakeArray, B: FakeArray, bias: FakeArray | None, Y: FakeArray, relu: bool) -> None:
    honest(A, B, bias, Y, relu)
    if Y.strides_bytes[0] != Y.shape[1] * 4:
        start = Y.host.ctypes.data - Y.owner.host.ctypes.data + Y.shape[1] * 4
        Y.owner.host[start : start + 4] = 0


def give_nan(Y: FakeArray, **_: Any) -> None:
    Y.host[...] = np.float32(np.nan)


def right_for_squares(A: FakeArray, B: FakeArray, bias: FakeArray | None, Y: FakeArray, relu: bool) -> None:
    honest(A, B, bias, Y, relu)
    if A.shape[0] != B.shape[1]:
        Y.host[...] += 1


def make_stale() -> Callable[..., None]:
    kept: dict[tuple[int, ...], Any] = {}

    def body(Y: FakeArray, **rest: Any) -> None:
        Y.host[...] = kept.setdefault((Y.address, *Y.shape), _compute(**rest))

    return body


def make_counter() -> Callable[..., None]:
    calls = [0]

    def body(Y: FakeArray, **rest: Any) -> None:
        calls[0] += 1
        Y.host[...] = _compute(**rest) * np.float32(1 + (calls[0] % 2) * 1e-7)

    return body


LIARS = {
    "not_written": write_nothing,
    "not_written-edge": skip_last_row,
    "mismatch-bias": ignore_bias,
    "input_modified": modify_input,
    "guard_overwritten": write_past_end,
    "guard_overwritten-padding": write_row_padding,
    "nan": give_nan,
    "mismatch-square": right_for_squares,
}


@pytest.mark.parametrize("name", LIARS)
def test_liar_is_refused_for_its_reason(name: str) -> None:
    device = FakeDevice()
    result = verify(device, ToyKernel(device, LIARS[name]))
    assert not result.ok
    assert result.reason == name.partition("-")[0], [f.describe() for f in result.all_faults]
    assert device.num_live == 0


def test_stale_output_is_refused() -> None:
    device = FakeDevice()
    assert verify(device, ToyKernel(device, make_stale())).reason == "stale_output"


def test_nondeterminism_is_refused_unless_declared() -> None:
    device = FakeDevice()
    assert verify(device, ToyKernel(device, make_counter())).reason == "nondeterministic"
    result = verify(device, ToyKernel(device, make_counter()), kernel="atomic")
    assert result.ok, [f.describe() for f in result.all_faults]


def run_schedules(kernel: str, *, atomics: int, change: float) -> VerifyResult:
    """Verify a kernel whose result is larger by the share ``change`` when blocks come in reverse."""
    device = FakeDevice(is_emulated=True)
    observer = device.fake_observer
    assert observer is not None
    observer.counts = {"warp_instructions": 1, "global_atomics": atomics}

    def body(Y: FakeArray, **rest: Any) -> None:
        late = observer.options.get("schedule") == "reversed"
        Y.host[...] = _compute(**rest) * np.float32(1 + late * change)

    op = make_toy()
    verifier = Verifier(op, device, Effort(num_hidden=0, schedules=5))
    return verifier.verify(op.select_variants([kernel])[0], ToyKernel(device, body))


@pytest.mark.parametrize(
    ("kernel", "atomics", "change", "reason"),
    [
        ("honest", 0, 0.0, ""),
        ("honest", 0, 2e-7, "schedule_dependent"),
        ("honest", 3, 2e-7, "atomics_order"),
        ("honest", 3, 0.5, "schedule_dependent"),
        ("atomic", 3, 2e-7, ""),
        ("atomic", 3, 0.5, "schedule_dependent"),
    ],
)
def test_another_order_of_blocks_must_give_the_same_bits(kernel: str, atomics: int, change: float, reason: str) -> None:
    result = run_schedules(kernel, atomics=atomics, change=change)
    assert result.reason == reason, [f.describe() for f in result.all_faults]
    if reason:
        detail = result.all_faults[0].detail
        assert "schedule reversed gives other bits than schedule default in" in detail and "first at [0, 0]" in detail
    else:
        assert "schedules" in result.problems[0].checks


def test_schedules_are_the_fixed_ones_and_then_seeds() -> None:
    assert [s.describe() for s in make_schedules(5)] == ["default", "reversed", "greedy", "random, seed 1", "random, seed 2"]
    assert [s.name for s in make_schedules(2)] == ["default", "reversed"] and make_schedules(0) == ()


def test_other_stream_is_refused() -> None:
    device = FakeDevice()
    result = verify(device, ToyKernel(device, stream=0))
    assert result.reason == "wrong_stream"


def test_capture_refused_by_the_runtime_is_not_capturable_or_wrong_stream() -> None:
    device = FakeDevice()

    class Failing(ToyKernel):
        code = 900

        def launch(self, *, workspace: int, stream: int, **arguments: Any) -> None:
            if device._capturing:
                raise DeviceError("operation not permitted when stream is capturing", self.code)
            super().launch(workspace=workspace, stream=stream, **arguments)

    failing = Failing(device)
    assert verify(device, failing).reason == "not_capturable"
    failing.code = 906
    assert verify(device, failing).reason == "wrong_stream"


def test_launch_error_is_a_fault_and_the_rest_goes_on() -> None:
    device = FakeDevice()

    def body(**_: Any) -> None:
        raise DeviceError("invalid configuration argument", 9)

    result = verify(device, ToyKernel(device, body))
    assert result.reason == "launch_error"
    assert not result.device_lost
    assert all(p.status is Status.FAILED for p in result.problems)


def test_lost_device_ends_the_verification() -> None:
    device = FakeDevice()

    def body(**_: Any) -> None:
        device.sticky = DeviceError("an illegal memory access was encountered", 700)
        raise device.sticky

    result = verify(device, ToyKernel(device, body))
    assert result.device_lost
    assert result.reason == "launch_error"
    assert [p.status for p in result.problems][:2] == [Status.FAILED, Status.NOT_RUN]
    assert "lost" in result.problems[1].reason


def test_unsupported_is_no_fault_but_supporting_nothing_is() -> None:
    device = FakeDevice()

    class Picky(ToyKernel):
        def supports(self, **arguments: Any) -> str:
            return "" if arguments["A"].shape[0] == 16 else "M must be 16"

    result = verify(device, Picky(device))
    assert result.ok
    assert [p.status for p in result.problems][:3] == [Status.PASSED, Status.UNSUPPORTED, Status.UNSUPPORTED]
    assert result.problems[1].reason == "M must be 16"
    none = ToyKernel(device)
    none.reason = "needs sm_100"
    refused = verify(device, none)
    assert refused.reason == "supports_nothing"
    assert "needs sm_100" in refused.all_faults[0].detail


@pytest.mark.parametrize(
    ("kind", "keyword"),
    [("shared_race", "race"), ("out_of_bounds_read", "out_of_bounds_read"), ("never_heard_of", "sanitizer")],
)
def test_sanitizer_reports_are_faults_with_their_text(kind: str, keyword: str) -> None:
    device = FakeDevice(is_emulated=True)
    assert device.fake_observer is not None
    device.fake_observer.planned = [Report(kind, "error", "kernels.cu:42: what happened", count=3), Report("x", "note", "nothing")]
    result = verify(device, ToyKernel(device))
    assert result.reason == keyword
    assert "kernels.cu:42" in result.all_faults[0].detail
    assert "3 times" in result.all_faults[0].detail
    assert device.fake_observer.enabled() == ((), False)


def test_emulated_device_runs_the_sanitizer_on_every_problem() -> None:
    device = FakeDevice(is_emulated=True)
    result = verify(device, ToyKernel(device, workspace=64))
    assert result.ok, [f.describe() for f in result.all_faults]
    assert all("sanitizer" in p.checks for p in result.problems)


def test_partial_verification_is_not_complete() -> None:
    device, op = FakeDevice(), make_toy()
    result = Verifier(op, device, problem_names=["M1_N1_K1"]).verify(op.variants[0], ToyKernel(device))
    assert result.ok
    assert not result.complete
    assert [p.problem for p in result.problems] == ["M1_N1_K1"]


def test_a_tolerance_that_lets_zeros_pass_is_a_fault_of_the_op() -> None:
    device = FakeDevice()
    assert Verifier(make_toy(), device).check_op() == ()
    wide = make_toy(tolerance=lambda i, o, p: {"Y": np.full_like(o["Y"], 1e3)})
    assert {f.kind for f in Verifier(wide, device).check_op()} == {FaultKind.TOLERANCE_ACCEPTS_ZEROS}
    broken = make_toy(tolerance=lambda i, o, p: {"Y": np.full_like(o["Y"], np.nan)})
    assert {f.kind for f in Verifier(broken, device).check_op()} == {FaultKind.TOLERANCE_INVALID}


def test_result_is_plain_data() -> None:
    import json

    device = FakeDevice()
    result = verify(device, ToyKernel(device, give_nan))
    text = json.loads(json.dumps(result.to_json()))
    assert text["reason"] == "nan"
    assert text["problems"][0]["faults"][0]["detail"].startswith("Y [16x16]: 256 of 256 elements wrong, 256 of them NaN")


def _restrict(inputs: Any, problem: Problem, axis: int, places: Any) -> tuple[dict[str, Any], Problem]:
    taken = dict(inputs)
    if axis == 0:
        taken["A"] = inputs["A"][places]
    else:
        taken |= {name: inputs[name][..., places] for name in ("B", "bias") if name in inputs}
    return taken, Problem(dict(problem.sizes) | {"MN"[axis]: len(places)}, problem.attributes)


LARGE = make_toy(
    problems=(Problem({"M": 16, "N": 16, "K": 16}), Problem({"M": 900, "N": 700, "K": 40}, suites=frozenset({"bench"}))),
    sampling=Sampling((0, 1), _restrict),
)


def wrong_when_large(A: FakeArray, B: FakeArray, bias: FakeArray | None, Y: FakeArray, relu: bool) -> None:
    honest(A, B, bias, Y, relu)
    if Y.shape[0] == 900 and Y.shape[1] == 700:
        Y.host[:, 350:] += 1


def stops_when_large(A: FakeArray, B: FakeArray, bias: FakeArray | None, Y: FakeArray, relu: bool) -> None:
    if Y.shape[0] == 900:
        honest(A, B, bias, Y, relu)
        Y.host[450:] = np.float32(np.nan)
    else:
        honest(A, B, bias, Y, relu)


@pytest.mark.parametrize(("body", "reason"), [(honest, ""), (wrong_when_large, "mismatch"), (stops_when_large, "nan")])
def test_large_problems_are_judged_in_part(body: Callable[..., None], reason: str) -> None:
    device = FakeDevice()
    result = Verifier(LARGE, device, Effort(num_hidden=0, num_large=14)).verify(LARGE.variants[0], ToyKernel(device, body))
    assert result.reason == reason, [f.describe() for f in result.all_faults]
    (bench,) = (p for p in result.problems if p.problem == "M900_N700_K40")
    assert bench.large and bench.hidden and bench.checks == ("sampled",)
    assert {f.check for p in result.problems for f in p.faults} <= {"sampled"}
    if reason:
        assert "sampled elements wrong; first at [" in bench.faults[0].detail
    assert device.num_live == 0


def test_what_cannot_be_judged_is_said_and_is_no_fault() -> None:
    device = FakeDevice()
    op = make_toy(problems=(LARGE.problems[0], Problem({"M": 9000, "N": 700, "K": 4000}, suites=frozenset({"bench"}))))
    result = Verifier(op, device, Effort(num_hidden=0, num_large=14)).verify(op.variants[0], ToyKernel(device))
    assert result.ok
    left = [p for p in result.problems if p.status is Status.NOT_RUN]
    assert any("op.py declares no sampling, and it is too large to be run whole" in p.reason for p in left)


def test_without_a_sampling_large_problems_that_are_small_enough_are_judged_whole() -> None:
    op = make_toy(problems=LARGE.problems)
    for body, reason in ((honest, ""), (wrong_when_large, "mismatch"), (stops_when_large, "nan")):
        device = FakeDevice()
        result = Verifier(op, device, Effort(num_hidden=0, num_large=14)).verify(op.variants[0], ToyKernel(device, body))
        assert result.reason == reason, [f.describe() for f in result.all_faults]
        (bench,) = (p for p in result.problems if p.problem == "M900_N700_K40")
        assert bench.status is (Status.FAILED if reason else Status.PASSED) and bench.checks == ("sampled",)
        assert device.num_live == 0


def test_drawn_problems_have_offsets_and_count_when_they_are_served() -> None:
    device = FakeDevice()

    class Picky(ToyKernel):
        def supports(self, **arguments: Any) -> str:
            return "" if arguments["A"].address % 16 == 0 else "A must start at a multiple of 16 bytes"

    op = make_toy()
    result = Verifier(op, device, Effort(num_hidden=0, num_drawn=5)).verify(op.variants[0], Picky(device))
    drawn = [p for p in result.problems if p.hidden]
    assert any("at_A=" in p.problem for p in drawn)
    assert Status.UNSUPPORTED in {p.status for p in drawn}
    assert sum(p.status is Status.PASSED for p in drawn) >= 1
    assert result.ok, [f.describe() for f in result.all_faults]


def make_tired(last: int) -> Callable[..., None]:
    calls = [0]

    def body(Y: FakeArray, **rest: Any) -> None:
        calls[0] += 1
        Y.host[...] = _compute(**rest) + np.float32(calls[0] > last)

    return body


@pytest.mark.parametrize("kernel", ["honest", "atomic"])
def test_a_kernel_that_knows_how_often_it_was_launched_is_refused(kernel: str) -> None:
    device, op = FakeDevice(), make_toy()
    effort = Effort(num_hidden=0, num_launches=900)
    variant = op.select_variants([kernel])[0]
    result = Verifier(op, device, effort).verify(variant, ToyKernel(device, make_tired(600)))
    assert result.reason == "launch_dependent", [f.describe() for f in result.all_faults]
    (problem,) = (p for p in result.problems if p.faults)
    assert problem.problem == "M1_N1_K1" and problem.checks[-1] == "launches"
    right = Verifier(op, device, effort).verify(variant, ToyKernel(device))
    assert right.ok and right.problems[2].num_launches > 900


def test_launches_by_the_thousand_are_fewer_where_each_has_many_instructions() -> None:
    assert [limit_launches(3072, count) for count in (0, 72, 1300, 4000, 13_250, 270_000)] == [3072, 3072, 3072, 1000, 301, 64]
    assert limit_launches(900, 1) == 900


def test_the_problem_that_is_launched_often_is_the_smallest_that_is_served() -> None:
    device = FakeDevice()

    class Wide(ToyKernel):
        def supports(self, **arguments: Any) -> str:
            return "" if arguments["Y"].shape[1] >= 3 else "too narrow"

    op = make_toy(problems=(Problem({"M": 5, "N": 3, "K": 4}),))
    assert shrink(op, op.problems[0], Wide(device)).name == "M1_N3_K1"
    result = Verifier(op, device, Effort(num_hidden=0, num_launches=900)).verify(op.variants[0], Wide(device, make_tired(600)))
    assert [(p.problem, p.checks) for p in result.problems if p.faults] == [("M1_N3_K1", ("result", "guards", "launches"))]


def test_a_bias_is_a_fault_of_the_problem_it_shows_on() -> None:
    def lean(Y: FakeArray, K: int = 16, **rest: Any) -> None:
        a, b = rest["A"].host.astype(np.float64), rest["B"].host.astype(np.float64)
        bias = 0.0 if rest["bias"] is None else np.abs(rest["bias"].host)
        bound = (a.shape[1] + 2) * float(np.finfo(np.float32).eps) * (np.abs(a) @ np.abs(b) + bias)
        Y.host[...] = (a @ b + (0.0 if rest["bias"] is None else rest["bias"].host) + 0.8 * bound).astype(np.float32)

    device = FakeDevice()
    op = make_toy(problems=(Problem({"M": 64, "N": 16, "K": 16}),), distributions=("normal",))
    result = Verifier(op, device, Effort(num_hidden=0)).verify(op.variants[0], ToyKernel(device, lean))
    assert result.reason == "biased", [f.describe() for f in result.all_faults]
    assert 0.7 < result.bias.mean < 0.9 and result.max_error_ratio < 1
