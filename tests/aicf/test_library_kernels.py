"""Libraries of others in place of a frozen kernel: where one is measured to be faster, and every reason why one is not taken."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import aicf
from aicf import Tensor, nn
from aicf import functional as F
from aicf.backends import frozen as backend
from aicf.commands.explain import _print as show
from aicf.errors import SelectionError
from aicf.kernels import external
from aicf.kernels.external import InstalledLibraries
from aicf.ops.calling import OpCall
from aicf.registry import Explanation, How, HwCaps, Preferences, Problem, Registry, explain
from contract.frozen_set import FrozenOp
from contract.layout import find_frozen_dir
from contract.libraries.adapters import find_adapter
from contract.libraries.binding import SONAME, Binding, Product, open_cublaslt
from deploy.errors import DeployError
from deploy.networks import read_network
from device import Device, UnavailableError
from harness.discover import find_op
from harness.spec import Problem as OpProblem
from tests.aicf.fake_libraries import ADAPTER, HOPPER, OP, VERSION, FakeLibraries, build_fake, copy_binding, make_point, make_row, open_fake

KIND: dict[str, Any] = {"dtype": "bfloat16", "b_layout": "nk", "act": "relu", "with_bias": True}
HERE = {"M": 40, "N": 64, "K": 48}


@pytest.fixture(scope="module")
def binding(tmp_path_factory: pytest.TempPathFactory) -> Binding:
    return open_fake(tmp_path_factory.mktemp("fake"))


@pytest.fixture(scope="module")
def own() -> FrozenOp:
    """The project's kernels: they are many, and take a second to read."""
    return Registry().read(OP).frozen


@pytest.fixture
def hold(binding: Binding, own: FrozenOp) -> Callable[..., Registry]:
    """Return a registry of the project's kernels and rows of libraries, where the stand-in is installed."""

    def make(*rows: dict[str, Any]) -> Registry:
        return Registry.holding(replace(own, libraries=rows), FakeLibraries(lambda: binding))

    return make


def tell(registry: Registry, problem: Problem, **prefs: Any) -> tuple[Explanation, str]:
    """Return an explanation, and why its one library was not chosen."""
    found = explain(OP, problem, HOPPER, Preferences(**prefs), registry)
    (library,) = found.libraries
    return found, library.dropped


def test_the_faster_of_both_is_chosen_and_explained(
    device: Device, hold: Callable[..., Registry], capsys: pytest.CaptureFixture[str]
) -> None:
    registry = hold(make_row(make_point(HERE, KIND, 0.8)))
    own = Registry().select(OP, Problem(HERE, KIND), HOPPER)
    handle = registry.select(OP, Problem(HERE, KIND), HOPPER)
    assert (handle.kernel, handle.how, handle.frozen.name) == ("cublaslt", How.LIBRARY, own.kernel)
    assert own.predicted_us is not None and handle.predicted_us == pytest.approx(0.8 * own.predicted_us)
    assert handle.deterministic and handle.capture_safe and handle.workspace_bytes == 4096 and handle.is_built
    assert handle.alignment_bytes == {"a": 256, "b": 256, "y": 256, "bias": 16} and handle.seal != own.seal
    found, dropped = tell(registry, Problem(HERE, KIND))
    assert (found.chosen, found.how, dropped) == ("cublaslt", "library", "")
    assert found.reason.startswith("cuBLASLt 13.0.2 takes 0.80 of the kernel's time, measured here: ")
    beaten = {c.kernel: c.dropped for c in found.candidates}[own.kernel]
    assert beaten.startswith("the fastest of the kernels (") and "the library is faster" in beaten
    assert json.loads(json.dumps(found.to_json()))["libraries"][0]["library"] == "cuBLASLt 13.0.2"
    show(found)
    show(tell(registry, Problem(HERE, KIND), prefer="own")[0])
    printed = capsys.readouterr().out
    assert "cuBLASLt 13.0.2: chosen: cuBLASLt 13.0.2 takes 0.80 of the kernel's time, measured here" in printed
    assert "cuBLASLt 13.0.2: the project's own kernels are preferred" in printed


def test_near_problems_count_by_distance_and_are_drawn_towards_no_difference(hold: Callable[..., Registry], device: Device) -> None:
    registry = hold(make_row(make_point(HERE, KIND, 0.5)))
    near = Problem(HERE | {"M": 80}, KIND)
    own = Registry().select(OP, near, HOPPER).predicted_us
    assert own is not None
    weight = 1.3**-2
    expected = 1.0 - 0.5 * weight / (0.1 + weight)
    assert registry.select(OP, near, HOPPER).predicted_us == pytest.approx(expected * own)
    assert "by measured problems near it" in registry.select(OP, near, HOPPER).reason
    other = Problem(HERE, KIND | {"act": "gelu_tanh", "dtype": "float16"})
    us = Registry().select(OP, other, HOPPER).predicted_us
    assert us is not None
    weight = 2.3**-2
    assert registry.select(OP, other, HOPPER).predicted_us == pytest.approx((1.0 - 0.5 * weight / (0.1 + weight)) * us), (
        "two classes differ"
    )
    _, far = tell(registry, Problem(HERE | {"N": 64 * 32}, KIND))
    assert far.startswith("is predicted to take 0.99 of the kernel's time")


def test_a_kernel_that_became_faster_since_is_the_rival(device: Device, hold: Callable[..., Registry]) -> None:
    own = Registry().select(OP, Problem(HERE, KIND), HOPPER)
    assert own.predicted_us is not None
    other = next(k for k in Registry().read(OP).frozen.kernels if k != own.kernel)
    slow = make_point(HERE, KIND, 0.5) | {"kernel": other, "kernel_us": 4 * own.predicted_us, "median_us": 2 * own.predicted_us}
    _, dropped = tell(hold(make_row(slow)), Problem(HERE, KIND))
    assert dropped.startswith("takes 2.00 of the kernel's time"), "half the time of a kernel that today's takes a quarter of"


@pytest.mark.parametrize(
    ("changes", "problem", "prefs", "reason"),
    [
        ({}, Problem(HERE, KIND | {"act": "silu"}), {}, "act must be one of none, relu, gelu_tanh"),
        ({}, Problem(HERE, KIND | {"save_z": True, "act": "gelu_tanh"}), {}, "save_z must be False"),
        ({}, Problem(HERE, KIND | {"with_residual": True}), {}, "with_residual must be False"),
        ({}, Problem(HERE, {"b_layout": "nk", "act": "relu"}), {}, "dtype must be one of bfloat16, float16"),
        ({}, Problem(HERE | {"K": 50}, KIND), {}, "K must be a multiple of 8"),
        ({}, Problem(HERE, KIND, {"a": 52}), {}, "a: its address a multiple of 256 bytes and its row stride a multiple of 8 elements"),
        ({}, Problem(HERE, KIND, {}, {"a": 16}), {}, "a: its address a multiple of 256 bytes and its row stride a multiple of 8 elements"),
        ({}, Problem(HERE, KIND, {}, {"bias": 8}), {}, "bias: its address a multiple of 16 bytes"),
        ({}, Problem(HERE, KIND), {"prefer": "own"}, "the project's own kernels are preferred"),
        ({"deterministic": False}, Problem(HERE, KIND), {"deterministic": True}, "its results may differ from run to run"),
        ({}, Problem(HERE, KIND), {"max_workspace_bytes": 4095}, "it may want 4096 bytes of workspace, more than 4095"),
        ({}, Problem(HERE, KIND), {"prefer": "memory"}, "it may want 4096 bytes of workspace, and the kernel 0"),
        ({"accumulate": "float64"}, Problem(HERE, KIND), {"accumulate": "float32"}, "it is known to sum in float64, not in float32"),
        ({"version": 130100}, Problem(HERE, KIND), {}, "version 13.0.2 is installed, and 13.1.0 was measured"),
        ({"library": "cudnn"}, Problem(HERE, KIND), {}, "this version of the project cannot call cudnn for gemm_bias_act"),
        ({"arch": "sm_90a"}, Problem(HERE | {"K": 8}, KIND), {}, "cuBLASLt's heuristic knows no algorithm for this product"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_why_a_library_is_not_taken(
    device: Device, hold: Callable[..., Registry], changes: dict[str, Any], problem: Problem, prefs: dict[str, Any], reason: str
) -> None:
    registry = hold(make_row(make_point(HERE, KIND, 0.3), make_point(HERE | {"K": 8}, KIND, 0.3), **changes))
    if prefs.get("prefer") == "memory" or "max_workspace_bytes" in prefs:
        # Every kernel that is left is asked what it wants, and compiled for that: one is enough.
        own = Registry().select(OP, problem, HOPPER).kernel
        for kernel in registry.find_tables(OP, HOPPER).kernels:
            if kernel.name != own:
                registry.refuse(OP, str(kernel.manifest["seal"]), "one is enough")
    found, dropped = tell(registry, problem, **prefs)
    assert reason in dropped and found.how != "library"
    assert registry.select(OP, problem, HOPPER, Preferences(**prefs)).library is None


def test_little_faster_is_not_faster_and_a_wrong_result_rules_out_what_is_near(device: Device, hold: Callable[..., Registry]) -> None:
    assert tell(hold(make_row(make_point(HERE, KIND, 0.99))), Problem(HERE, KIND))[1].startswith("takes 0.99 of the kernel's time: ")
    wrong = make_point(HERE | {"M": 60}, KIND, None)
    registry = hold(make_row(make_point(HERE, KIND, 0.5), wrong))
    assert tell(registry, Problem(HERE, KIND))[1] == "its result missed the op's bound at M60_N64_K48"


def test_a_library_that_cannot_be_opened_is_named(device: Device, tmp_path: Path) -> None:
    def fail() -> Binding:
        return Binding("/nowhere/libcublasLt.so.13", compiled)

    compiled = copy_binding(tmp_path / "unused.so")
    registry = Registry.holding(
        replace(Registry().read(OP).frozen, libraries=(make_row(make_point(HERE, KIND, 0.5)),)), FakeLibraries(fail)
    )
    _, dropped = tell(registry, Problem(HERE, KIND))
    assert SONAME in dropped and "/nowhere/libcublasLt.so.13" in dropped and "pip install nvidia-cublas" in dropped


def test_a_library_without_the_functions_is_refused(device: Device, tmp_path: Path) -> None:
    compiled = copy_binding(tmp_path / "fresh.so")
    with pytest.raises(UnavailableError, match=r"libm.*has no cublasLtGetVersion"):
        Binding("libm.so.6", compiled)


def test_the_emulated_device_has_no_libraries(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    if not device.is_emulated:
        pytest.skip("a GPU is open")
    row, interface = make_row(make_point(HERE, KIND, 0.5)), Registry().read(OP).frozen.interface
    assert InstalledLibraries().find(OP, row, interface) == "the emulated device runs the project's own kernels alone"
    monkeypatch.setenv("AICF_LIBRARIES", "off")
    assert InstalledLibraries().find(OP, row, interface) == "AICF_LIBRARIES is off"
    monkeypatch.delenv("AICF_LIBRARIES")

    def fail() -> Device:
        raise UnavailableError("no GPU answers\nand a remedy")

    monkeypatch.setattr(external, "open_device", fail)
    assert InstalledLibraries().find(OP, row, interface) == "no device is open: no GPU answers"
    registry = Registry.holding(replace(Registry().read(OP).frozen, libraries=(row,)))
    assert registry.select(OP, Problem(HERE, KIND), HOPPER).library is None


def test_what_cannot_be_used_is_left_out_from_then_on(device: Device, hold: Callable[..., Registry]) -> None:
    registry = hold(make_row(make_point(HERE, KIND, 0.5)))
    handle = registry.select(OP, Problem(HERE, KIND), HOPPER)
    registry.refuse(OP, handle.seal, "the driver is too old")
    assert registry.select(OP, Problem(HERE, KIND), HOPPER).library is None
    assert tell(registry, Problem(HERE, KIND))[1] == "it cannot be used here: the driver is too old"


def test_an_interface_that_the_binding_does_not_know_is_refused() -> None:
    interface = Registry().read(OP).frozen.interface
    adapter = find_adapter("cublaslt", OP)
    assert adapter is ADAPTER and adapter.find_fault(interface) == ""
    fields = [dict(f) for f in interface["fields"]]
    fields[5], fields[6] = fields[6], fields[5]
    assert "structs that begin with a, b, bias" in adapter.find_fault(dict(interface) | {"fields": fields})
    attributes = [dict(a) | ({"codes": [2, 1, 0]} if a["name"] == "dtype" else {}) for a in interface["attributes"]]
    assert "takes dtype as bfloat16 = 1, float16 = 2" in adapter.find_fault(dict(interface) | {"attributes": attributes})


def draw(shape: tuple[int, ...], kind: Any, seed: int) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(kind)


@pytest.mark.parametrize(
    ("dtype", "layout", "act", "bias"),
    [("bfloat16", "nk", "relu", True), ("float16", "kn", "gelu_tanh", True), ("bfloat16", "kn", "none", False)],
)
def test_a_call_runs_the_library_and_is_right(
    device: Device, hold: Callable[..., Registry], dtype: str, layout: str, act: str, bias: bool
) -> None:
    """Eager, by the lean path: twice, so that the second call takes the plan of the first."""
    attributes = {"dtype": dtype, "b_layout": layout, "act": act, "with_bias": bias}
    registry = hold(make_row(make_point(HERE, attributes, 0.5)))
    call = OpCall(OP, registry)
    op, kind = find_op(OP).op, ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float16
    m, n, k = HERE["M"], HERE["N"], HERE["K"]
    for seed in (1, 2):
        inputs = {"a": draw((m, k), kind, seed), "b": draw((k, n) if layout == "kn" else (n, k), kind, seed + 5)}
        inputs |= {"bias": draw((n,), kind, seed + 9)} if bias else {}
        placed = [device.asarray(inputs[name]) if name in inputs else None for name in ("a", "b", "bias")]
        options = {"act": act, "b_layout": layout}
        y = call.caller(*placed, **options)
        problem = OpProblem(HERE, attributes)
        wide = {name: np.asarray(value, np.float64) for name, value in inputs.items()}
        expected = op.reference(wide, problem)
        assert np.all(np.abs(np.asarray(y.copy_to_host(), np.float64) - expected["y"]) <= op.tolerance(wide, expected, problem)["y"])


def test_a_launch_without_its_workspace_says_what_the_library_said(device: Device, binding: Binding, hold: Callable[..., Registry]) -> None:
    binding.create()
    a, b, y = (device.asarray(np.zeros(shape, np.float16)) for shape in ((8, 16), (24, 16), (8, 24)))
    product = Product(a.address, b.address, None, y.address, 8, 24, 16, 16, 16, 24, 2, 68, 1, 1)
    assert binding.find_fault(product) == "" and binding.ask_workspace(product) == 4096
    with pytest.raises(RuntimeError, match="cublasLtMatmul failed with cublasStatus_t 7"):
        binding.launch(product, 0, 0)
    product.k = 8
    with pytest.raises(RuntimeError, match="knows no algorithm"):
        binding.ask_workspace(product)


def test_other_preferences_must_be_known() -> None:
    with pytest.raises(ValueError, match="prefer='library': must be speed, memory or own"):
        Registry().select(OP, Problem(HERE, KIND), HOPPER, Preferences(prefer="library"))  # type: ignore[arg-type]


def test_versions_are_read_from_the_library(tmp_path: Path) -> None:
    assert open_fake(tmp_path, 130100).version == 130100 and build_fake(tmp_path, 130100).is_file()
    assert VERSION != 130100


@pytest.mark.parametrize("rows", [HERE["M"], 2 * HERE["M"]])
def test_cublaslt_itself_is_right_and_can_be_captured(device: Device, rows: int) -> None:
    """On a GPU with the real library: captured into a graph before anything else ran, replayed, then launched: the same bits, and right."""
    if device.is_emulated:
        pytest.skip("needs a GPU and cuBLASLt: AICF_DEVICE=cuda")
    try:
        binding = open_cublaslt()
    except UnavailableError as error:
        pytest.skip(str(error))
    sizes = HERE | {"M": rows}
    frozen = replace(Registry().read(OP).frozen, libraries=(make_row(make_point(HERE, KIND, 0.5), version=binding.version),))
    handle = Registry.holding(frozen).select(OP, Problem(sizes, KIND), HwCaps.of(device))
    assert handle.how is How.LIBRARY, "the installed library is of the version that its row names"
    shapes = {"a": (rows, HERE["K"]), "b": (HERE["N"], HERE["K"]), "bias": (HERE["N"],), "y": (rows, HERE["N"])}
    host = {name: draw(shape, ml_dtypes.bfloat16, seed) for seed, (name, shape) in enumerate(shapes.items())}
    arrays = {name: device.asarray(value) for name, value in host.items()}
    workspace = device.asarray(np.zeros(max(handle.workspace_bytes, 1), np.uint8))
    stream = device.create_stream()

    def launch() -> None:
        handle.launch({name: array.address for name, array in arrays.items()}, stream=stream.handle, workspace=workspace.address)

    def read(run: Callable[[], None]) -> Any:
        arrays["y"].copy_from_host(np.zeros(shapes["y"], ml_dtypes.bfloat16))
        run()
        stream.synchronize()
        return arrays["y"].copy_to_host()

    with device.capture(stream) as graphs:
        launch()
    replayed, launched = read(lambda: graphs[0].launch(stream)), read(launch)
    assert np.array_equal(replayed.view(np.uint16), launched.view(np.uint16))
    op, problem = find_op(OP).op, OpProblem(sizes, KIND)
    wide = {name: np.asarray(host[name], np.float64) for name in ("a", "b", "bias")}
    expected = op.reference(wide, problem)
    assert np.all(np.abs(launched.astype(np.float64) - expected["y"]) <= op.tolerance(wide, expected, problem)["y"])


def test_a_call_that_nothing_serves_is_refused_as_before(hold: Callable[..., Registry]) -> None:
    registry = hold(make_row(make_point(HERE, KIND, 0.5)))
    with pytest.raises(SelectionError, match="no frozen kernel"):
        registry.select(OP, Problem(HERE, KIND), HOPPER, Preferences(accumulate="int8"))


class Layer(nn.Module):
    """A linear layer of 16-bit floats with ReLU: x [M, K], weight [N, K], bias [N]."""

    def __init__(self) -> None:
        rng = np.random.default_rng(3)
        n, k = HERE["N"], HERE["K"]
        self.weight = nn.Parameter(Tensor(rng.uniform(-1, 1, (n, k)), dtype="bfloat16"))
        self.bias = nn.Parameter(Tensor(rng.uniform(-1, 1, n), dtype="bfloat16"))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias, act="relu")


@pytest.fixture
def framework(device: Device, hold: Callable[..., Registry], monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """The framework on a registry where the stand-in takes half of the kernel's time."""
    registry = hold(make_row(make_point(HERE, KIND, 0.5)))
    monkeypatch.setattr(backend, "open_registry", lambda: registry)
    backend.CALLS.clear()
    yield registry
    backend.CALLS.clear()


def compile_layer() -> tuple[aicf.train.Program, Tensor]:
    x = Tensor(np.random.default_rng(4).uniform(-1, 1, (HERE["M"], HERE["K"])), dtype="bfloat16")
    return aicf.compile(Layer(), (x,), backend="cuda"), x


def test_a_plan_names_the_library_and_launches_it(framework: Registry, device: Device) -> None:
    program, x = compile_layer()
    (step,) = [s for s in program.plan.steps if s.op == OP]
    own = Registry().select(OP, Problem(HERE, KIND), HOPPER)
    assert step.kernel == "cublaslt" and step.workspace is not None and step.workspace.type.size_bytes == 4096
    if device.is_emulated:  # the stand-in computes on the host, which no graph holds: the first run is stepwise
        found = program(x).numpy().astype(np.float64)
        wanted = Layer()(x).numpy().astype(np.float64)
        assert np.abs(found - wanted).max() <= 2.0**-8 * np.abs(wanted).max()
    calls = backend.open_calls(deterministic=True)
    types = [None if slot is None else slot.type for slot in step.inputs]
    seals = calls.list_seals(OP, types, step.attrs)
    assert {step.seal, own.seal} <= set(seals), "tuning measures both"
    assert calls.find_sealed(OP, types, step.attrs, step.seal).handle.how is How.LIBRARY
    assert calls.find_sealed(OP, types, step.attrs, own.seal).handle.kernel == own.kernel


def test_a_saved_plan_looks_for_its_library_and_is_not_deployed(framework: Registry, tmp_path: Path) -> None:
    program, _ = compile_layer()
    program.save(tmp_path / "layer")
    loaded = aicf.load(tmp_path / "layer")
    assert isinstance(loaded, aicf.train.Program) and "cublaslt" in [s.kernel for s in loaded.plan.steps]
    with pytest.raises(DeployError, match=r"calls a library of others.*AICF_LIBRARIES=off"):
        read_network(tmp_path / "layer", find_frozen_dir(), tmp_path / "out")
    framework.refuse(OP, next(s.seal for s in program.plan.steps if s.kernel == "cublaslt"), "it is gone")
    backend.CALLS.clear()
    with pytest.raises(SelectionError, match="or a library that cannot be used here; compile it again"):
        aicf.load(tmp_path / "layer")
