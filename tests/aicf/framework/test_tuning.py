"""``tune_seconds``: the choice obeys measured medians, within its time, and what was measured is not measured again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import aicf
from aicf import Tensor, nn
from aicf.backends.calls import FrozenCall
from aicf.backends.frozen import FrozenCalls, open_calls
from aicf.errors import UnsupportedError
from aicf.opset import Attrs, Type, find_op
from aicf.plan import Plan, Slot, Step
from aicf.plan import make_plan as plan_graph
from aicf.plan.streams import choose_streams, predict_us
from aicf.runtime.device import DeviceExecutor
from aicf.runtime.host import HostExecutor
from aicf.runtime.tuning import Medians, tune
from contract.errors import FrozenError
from contract.frozen_set import read_op
from device import Device, UnavailableError

# What each kernel takes on a call with that many columns: of these the medians count, an outlier does not.
TIMES = {
    64: {"slow": [9.0, 9.0, 9.1], "fast": [4.0, 400.0, 4.1], "other": [5.0, 4.5, 5.0]},
    128: {"slow": [2.0, 2.0, 2.0], "fast": [3.0, 3.0, 3.0], "other": [2.5, 2.5, 2.5]},
}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """Kernels by name and their times: what the registry and a GPU are to tuning. Each timing takes a second."""

    def __init__(self, plan: Plan, clock: Clock, broken: Sequence[str] = ()) -> None:
        self.plan = plan
        self.done: list[Any] = []
        self._clock, self._broken = clock, broken

    def list_seals(self, op: str, types: Sequence[Type | None], attrs: Attrs) -> list[str]:
        return ["fast", "other", "slow"]

    def find_sealed(self, op: str, types: Sequence[Type | None], attrs: Attrs, seal: str) -> FrozenCall:
        def load() -> None:
            if seal in self._broken:
                raise FrozenError(f"{seal} is not what was sealed")

        call: Any = SimpleNamespace(seal=seal, handle=SimpleNamespace(kernel=f"the {seal} one", load=load))
        found: FrozenCall = call
        return found

    def refuse(self, call: FrozenCall, error: Exception) -> str:
        self.done.append(("refused", call.seal))
        return str(error)

    def reset(self) -> None:
        self.done.append("reset")

    def reach(self, index: int) -> None:
        self.done.append(("reach", index))

    def time_call(self, index: int, call: FrozenCall) -> list[float]:
        self.done.append((index, call.seal))
        self._clock.now += 1.0
        slot = self.plan.steps[index].inputs[0]
        assert slot is not None
        return TIMES[slot.type.shape[1]][call.seal]


def make_plan() -> Plan:
    """Return a plan of three launches, the first and the last of which are the same call."""
    slots = [Slot(i, "arena", 65536 * i, Type("float32", (4, n))) for i, n in enumerate((64, 128, 64))]
    steps = [Step(i, "softmax", {}, (s,), (s,), kernel="the slow one", seal="slow", predicted_us=1.0) for i, s in enumerate(slots)]
    return Plan("net", "cuda", tuple(steps), (), (), (), (), {"arena": 1 << 20}, 0)


def run(bench: Bench, clock: Clock, path: Path, seconds: float) -> tuple[dict[int, tuple[str, float]], list[str]]:
    chosen, said = tune(bench, bench, Medians(path), seconds, bench.reset, clock)
    return {i: (call.seal, us) for i, (call, us) in chosen.items()}, said


def test_each_call_gets_the_kernel_with_the_least_median(tmp_path: Path) -> None:
    clock = Clock()
    bench = Bench(make_plan(), clock)
    chosen, said = run(bench, clock, tmp_path / "medians.json", 60.0)
    assert chosen == {0: ("fast", 4.1), 2: ("fast", 4.1)}  # and the call of 128 columns keeps its own
    assert said[0] == "softmax of -: the fast one 4.10 us, the least of 3; 9.00 before"
    # Inputs are in place before a step is timed, and its own kernel comes first.
    assert bench.done[:3] == ["reset", ("reach", 0), (0, "slow")]


def test_medians_are_kept_and_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "tuned" / "medians.json"
    clock = Clock()
    first = run(Bench(make_plan(), clock), clock, path, 60.0)
    again = Bench(make_plan(), clock)
    assert run(again, clock, path, 60.0) == first
    assert again.done == []
    # What is kept decides, whatever it says.
    known = json.loads(path.read_text())
    (key,) = [key for key in known if "float32[4,64]" in key]
    known[key]["other"] = 0.5
    path.write_text(json.dumps(known))
    assert run(again, clock, path, 60.0)[0] == {0: ("other", 0.5), 2: ("other", 0.5)}
    path.write_text("{")  # cut short: measured again
    assert run(again, clock, path, 60.0) == first


def test_the_time_that_is_given_is_kept_to(tmp_path: Path) -> None:
    clock = Clock()
    bench = Bench(make_plan(), clock)
    chosen, said = run(bench, clock, tmp_path / "medians.json", 2.0)
    assert chosen == {0: ("fast", 4.1), 2: ("fast", 4.1)}  # of the two that were timed
    assert clock.now == 2.0
    assert said[-1] == "the 2 s are over: 1 of 2 calls keep their kernels"


def test_a_kernel_that_cannot_be_loaded_is_left_out(tmp_path: Path) -> None:
    clock = Clock()
    bench = Bench(make_plan(), clock, broken=["fast"])
    chosen, _ = run(bench, clock, tmp_path / "medians.json", 60.0)
    assert chosen == {0: ("other", 5.0), 2: ("other", 5.0)}
    assert ("refused", "fast") in bench.done


def test_without_a_gpu_tuning_is_refused(device: Device) -> None:
    x = Tensor(np.ones((4, 8), np.float32))
    with pytest.raises(UnsupportedError, match="backend numpy has no kernels to choose from"):
        aicf.compile(nn.Softmax(), (x,), tune_seconds=1.0)
    with pytest.raises(ValueError, match="tune_seconds=-1"):
        aicf.compile(nn.Softmax(), (x,), tune_seconds=-1.0)
    if device.is_emulated:
        with pytest.raises(UnavailableError, match="tune_seconds=1: the emulated device has no time to choose kernels by; leave it 0"):
            aicf.compile(nn.Softmax(), (x,), backend="cuda", tune_seconds=1.0)
    else:
        program = aicf.compile(nn.Softmax(), (x,), backend="cuda", tune_seconds=1.0)
        (entry,) = [e for e in program.log if e.rule == "tune"]
        assert entry.notes
        np.testing.assert_allclose(program(x).numpy(), nn.Softmax()(x).numpy(), rtol=1e-5)


@pytest.mark.slow  # several kernels that serve a softmax are compiled
def test_a_program_is_planned_again_with_what_is_fastest(device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way from times to a plan, where times are made up."""
    x = Tensor(np.random.default_rng(0).normal(size=(8, 96)).astype(np.float32), backend="cuda")
    before = aicf.compile(nn.Softmax(), (x,), backend="cuda")
    seen: dict[str, float] = {}

    def time_call(self: DeviceExecutor, index: int, call: FrozenCall) -> list[float]:
        self._binding.bind(index, call)()
        seen[call.handle.kernel] = 1.0 if call.handle.kernel.startswith("naive") else 2.0
        return [seen[call.handle.kernel]] * 3

    def list_some(calls: FrozenCalls, *asked: Any) -> list[str]:
        return [seal for seal in list_seals(calls, *asked) if seal in some]

    # Of sixteen that serve it, which would all be compiled.
    names = ("naive__", "block_online__", before.plan.steps[0].kernel)
    some = {str(k.manifest["seal"]) for k in read_op("softmax").kernels.values() if k.name.startswith(names)}
    list_seals = FrozenCalls.list_seals
    facts = SimpleNamespace(name="a GPU", driver_version=1, runtime_version=2)
    with monkeypatch.context() as patched:
        patched.setattr(FrozenCalls, "list_seals", list_some)
        patched.setattr("aicf.runtime.tuning.read_settings", lambda: SimpleNamespace(cache_dir=tmp_path))
        patched.setattr("aicf.runtime.tuning.open_device", lambda: SimpleNamespace(is_emulated=False, properties=facts))
        patched.setattr(DeviceExecutor, "time_call", time_call)
        patched.setattr(DeviceExecutor, "time_step", lambda self, index: 1.0)
        # Longer than compiling them all takes anywhere: what is cut short is tested above.
        program = aicf.compile(nn.Softmax(), (x,), backend="cuda", tune_seconds=3600.0)
    assert not before.plan.steps[0].kernel.startswith("naive")
    assert program.plan.steps[0].kernel.startswith("naive")
    assert program.plan.steps[0].predicted_us == 1.0
    softmax = find_op("softmax")
    assert len(seen) == len(list_some(open_calls(deterministic=True), "softmax", [x.type, None, None, None], softmax.fill({}))) >= 3
    (entry,) = [e for e in program.log if e.rule == "tune"]
    assert entry.notes[-1] == "one stream: 1.0 us; side by side 1.0 us are expected at best"
    (path,) = (tmp_path / "tuned").iterdir()
    assert path.name == "a-GPU-driver-1-runtime-2.json"
    np.testing.assert_allclose(program(x).numpy(), before(x).numpy(), rtol=1e-6)


class Branches(nn.Module):
    """Two chains of products side by side, and their sum."""

    def __init__(self) -> None:
        aicf.manual_seed(0)
        self.left = nn.Sequential(*(nn.Linear(32, 32) for _ in range(3)))
        self.right = nn.Sequential(*(nn.Linear(32, 32) for _ in range(3)))

    def forward(self, x: Tensor) -> Tensor:
        return self.left(x) + self.right(x)


def choose(model: nn.Module, lost_us: float) -> tuple[Plan, str]:
    """Return what is chosen where each product takes 10 us, the rest 1, and a run on two streams that much more than it should."""
    program = aicf.compile(model, (Tensor(np.ones((4, 32), np.float32)),))
    assert program.graph is not None
    graph = program.graph
    times = [10.0 if step.op == "Linear" else 1.0 for step in program.plan.steps]

    def time_us(plan: Plan) -> float:
        streams = [step.stream for step in plan.steps]
        return predict_us(plan, times, streams) + lost_us * (plan.num_streams - 1)

    return choose_streams(program.plan, times, lambda streams: plan_graph(graph, "numpy", streams=streams), time_us)


def test_two_streams_are_used_where_they_are_measured_to_win() -> None:
    plan, told = choose(Branches(), 0.0)
    assert plan.num_streams == 2
    left, right = ({s.stream for s in plan.steps if s.owner.startswith(side)} for side in ("left", "right"))
    assert len(left) == len(right) == 1 and left != right
    assert told == "2 streams take 32.0 us, one takes 61.0 us"
    program = aicf.compile(Branches(), (Tensor(np.ones((4, 32), np.float32)),))
    x = np.random.default_rng(1).normal(size=(4, 32)).astype(np.float32)
    executor = HostExecutor(plan, poison=True)
    executor.load_states({key: tensor.numpy() for key, tensor in program.tensors.items()})
    executor.put([x])
    executor.run()
    np.testing.assert_array_equal(executor.read(plan.outputs[0]), program(x).numpy())


def test_two_streams_are_not_used_where_they_are_measured_to_lose() -> None:
    plan, told = choose(Branches(), 40.0)
    assert plan.num_streams == 1
    assert told == "2 streams take 72.0 us, one takes 61.0 us: one stream is kept"


def test_a_chain_of_steps_stays_on_one_stream_unmeasured() -> None:
    plan, told = choose(nn.Sequential(*(nn.Linear(32, 32) for _ in range(4))), -100.0)
    assert plan.num_streams == 1
    assert told.startswith("one stream: 40.0 us; side by side 40.0 us are expected")
