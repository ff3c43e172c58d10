"""Frozen ops as functions on arrays: right, made from the index alone, and clear about what does not fit."""

from __future__ import annotations

import inspect
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import aicf.ops
from aicf.errors import LaunchError
from aicf.ops.arrays import DeviceFramework, find_dtype
from aicf.ops.calling import OpCall
from aicf.ops.extension import load_extension
from aicf.registry import HwCaps, Problem, Registry, open_registry
from device import Device
from device.cudart import Cudart
from harness.discover import find_op
from harness.spec import Problem as OpProblem

GEMM = find_op("gemm_bias_act").op
SOFTMAX = find_op("softmax").op


def draw(shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def check(op: Any, problem: OpProblem, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    """Hold outputs against the op's own reference and tolerance."""
    wide = {name: np.asarray(v, np.float64) for name, v in inputs.items()}
    expected = op.reference(wide, problem)
    bounds = op.tolerance(wide, expected, problem)
    for name, found in outputs.items():
        error = np.abs(np.asarray(found, np.float64) - expected[name])
        assert found.shape == expected[name].shape
        assert np.all(error <= bounds[name]), name


@pytest.mark.parametrize(
    ("m", "n", "k", "dtype", "layout", "act", "bias", "z"),
    [
        (5, 9, 7, "float32", "kn", "silu", True, False),
        (33, 64, 17, "float32", "kn", "none", False, True),
        (5, 9, 7, "float32", "nk", "silu", True, False),
        (33, 130, 67, "float32", "nk", "gelu_erf", True, True),
        (16, 40, 24, "bfloat16", "nk", "gelu_tanh", True, False),
        pytest.param(9, 31, 15, "float16", "kn", "relu", True, True, marks=pytest.mark.slow),
    ],
)
def test_host_arrays_go_to_the_device_and_back(
    device: Device, m: int, n: int, k: int, dtype: str, layout: str, act: str, bias: bool, z: bool
) -> None:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    b_shape = (k, n) if layout == "kn" else (n, k)
    inputs = {"a": draw((m, k), kind), "b": draw(b_shape, kind), **({"bias": draw((n,), kind)} if bias else {})}
    made = aicf.ops.gemm_bias_act(*inputs.values(), act=act, b_layout=layout, save_z=z)
    outputs = dict(zip(("y", "z"), made, strict=True)) if z else {"y": made}
    attributes = {"act": act, "dtype": dtype, "b_layout": layout, "with_bias": bias, "save_z": z}
    assert all(type(each) is np.ndarray and each.dtype == kind for each in outputs.values())
    check(GEMM, OpProblem({"M": m, "N": n, "K": k}, attributes), inputs, outputs)


def test_a_size_that_no_shape_names_follows_from_what_the_op_ties_together(device: Device) -> None:
    """Without W a backward pass is that of the activation alone: N is K."""
    backward = find_op("gemm_backward").op
    dy, z = draw((65, 37), np.float16), draw((65, 37), np.float16, seed=1)
    dz, dbias = aicf.ops.gemm_backward(dy, z=z, act="silu")
    attributes = {"act": "silu", "dtype": "float16", "with_w": False, "with_dw": False}
    check(backward, OpProblem({"M": 65, "N": 37, "K": 37}, attributes), {"dy": dy, "z": z}, {"dz": dz, "dbias": dbias})
    with pytest.raises(ValueError, match=r"with_dw: expected False where with_w = False, got True"):
        aicf.ops.gemm_backward(dy, x=z, z=z, act="silu")
    with pytest.raises(ValueError, match=r"with_dz: expected True where with_w = False, got False"):
        aicf.ops.gemm_backward(dy, with_dz=False)


def test_a_backward_pass_is_called_as_before_it_could_add_to_a_total(device: Device) -> None:
    """Whether dW is wanted is told by x, and whether it is added by dw_total: neither is an option, and without x there is no dW."""
    call = OpCall("gemm_backward", open_registry())
    assert [a["name"] for a in call.signature.options] == ["act", "w_layout", "with_dz", "with_dbias"]
    assert [name for name, _ in call.signature.inputs] == ["dy", "w", "x", "z", "dw_total"]
    inputs = {"dy": draw((65, 21), np.float32), "w": draw((21, 37), np.float32, seed=1)}
    dz, dbias = aicf.ops.gemm_backward(*inputs.values())
    attributes = {"dtype": "float32", "with_dw": False}
    problem = OpProblem({"M": 65, "N": 21, "K": 37}, attributes)
    check(find_op("gemm_backward").op, problem, inputs, {"dz": dz, "dbias": dbias})


@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_a_total_is_added_to_in_place_on_the_host_and_on_the_device(device: Device, dtype: str) -> None:
    kind = find_dtype(dtype)
    inputs = {n: draw(shape, kind, seed=i) for i, (n, shape) in enumerate({"dy": (65, 21), "w": (21, 37), "x": (65, 37)}.items())}
    before = draw((21, 37), kind, seed=7)
    problem = OpProblem({"M": 65, "N": 21, "K": 37}, {"dtype": dtype, "accumulate": True})
    total, on_device = before.copy(), {name: device.asarray(values) for name, values in (inputs | {"dw_total": before}).items()}
    dz, dbias = aicf.ops.gemm_backward(**inputs, dw_total=total)
    check(find_op("gemm_backward").op, problem, inputs | {"dw_total": before}, {"dz": dz, "dbias": dbias, "dw_total": total})
    assert aicf.ops.gemm_backward(**on_device, with_dz=False, with_dbias=False) == ()
    assert np.array_equal(on_device["dw_total"].copy_to_host(), total)
    with pytest.raises(ValueError, match=r"x: expected an array where|with_dw: expected True where accumulate = True, got False"):
        aicf.ops.gemm_backward(inputs["dy"], inputs["w"], dw_total=total)


def test_a_call_that_wants_a_workspace_gets_it(device: Device) -> None:
    backward = find_op("gemm_backward").op
    inputs = {n: draw(shape, np.float16, seed=i) for i, (n, shape) in enumerate({"dy": (65, 21), "w": (21, 37), "x": (65, 37)}.items())}
    inputs["z"] = draw((65, 37), np.float16, seed=7)
    made = aicf.ops.gemm_backward(*inputs.values(), act="relu")
    problem = OpProblem({"M": 65, "N": 21, "K": 37}, {"act": "relu", "dtype": "float16"})
    check(backward, problem, inputs, dict(zip(("dz", "dbias", "dw"), made, strict=True)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("layout", ["kn", "nk"])
def test_a_fallback_serves_any_sizes_and_strides_in_every_dtype_and_layout(device: Device, dtype: str, layout: str) -> None:
    problem = Problem({"M": 3, "N": 5, "K": 7}, {"dtype": dtype, "b_layout": layout, "act": "silu", "with_bias": True, "save_z": True})
    tables = open_registry().find_tables("gemm_bias_act", HwCaps.of(device))
    legal = tables.core.ask(tables.interface.make_query(problem)).legal
    assert any(legal >> kernel & 1 and "fallback" in roles for kernel, roles in enumerate(tables.roles))
    assert open_registry().select("gemm_bias_act", problem, HwCaps.of(device)).launch


@pytest.mark.slow
def test_device_arrays_stay_on_the_device_and_a_second_call_has_its_plan(device: Device) -> None:
    call = OpCall("softmax", open_registry())
    values = draw((6, 100))
    x = device.asarray(values)
    first = call.caller(x)
    assert type(first) is type(x) and first.address != x.address
    assert call.caller.count_plans() == 1
    other = call.caller(device.asarray(values[::-1].copy()))
    assert call.caller.count_plans() == 1
    check(SOFTMAX, OpProblem({"rows": 6, "columns": 100}), {"x": values}, {"y": first.copy_to_host()})
    assert np.array_equal(other.copy_to_host()[::-1], first.copy_to_host())
    call.caller(device.asarray(draw((6, 101))))
    assert call.caller.count_plans() == 2


def test_arrays_that_the_lean_path_cannot_read_go_the_long_way(device: Device) -> None:
    call = OpCall("softmax", open_registry())
    values = draw((6, 100))
    arrays = {"x": device.asarray(values)}
    made = call.run_slowly(DeviceFramework(), arrays, arrays["x"], (arrays["x"], None, None, None, False, "none"))
    check(SOFTMAX, OpProblem({"rows": 6, "columns": 100}), {"x": values}, {"y": made.copy_to_host()})
    assert call.caller.count_plans() == 0


def test_padded_rows_are_read_where_they_lie(device: Device) -> None:
    values = draw((4, 30))
    padded = device.allocate(4 * 40 * 4).view((4, 30), np.float32, strides_bytes=(160, 4))
    padded.copy_from_host(values)
    check(SOFTMAX, OpProblem({"rows": 4, "columns": 30}), {"x": values}, {"y": aicf.ops.softmax(padded).copy_to_host()})


@pytest.mark.slow
def test_an_address_that_a_kernel_cannot_take_gets_another_kernel(device: Device) -> None:
    values, weights = draw((16, 24), ml_dtypes.bfloat16), draw((40, 24), ml_dtypes.bfloat16)
    buffer = device.allocate(16 * 24 * 2 + 2)
    a = buffer.view((16, 24), ml_dtypes.bfloat16, offset_bytes=2)
    a.copy_from_host(values)
    b = device.asarray(weights)
    call = OpCall("gemm_bias_act", open_registry())
    options = [o["default"] if o["name"] != "b_layout" else "nk" for o in call.signature.options]
    made = [
        call.caller(each, b, *(None for _ in call.signature.inputs[2:]), *options).copy_to_host() for each in (a, device.asarray(values))
    ]
    assert call.caller.count_plans() == 2
    for each in made:
        problem = OpProblem({"M": 16, "N": 40, "K": 24}, {"dtype": "bfloat16", "b_layout": "nk"})
        check(GEMM, problem, {"a": values, "b": weights}, {"y": each})


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((draw((4, 8), np.float64), draw((8, 4))), {}, TypeError, r"a: expected a dtype of float32, bfloat16, float16, got float64"),
        ((draw((4, 8)), draw((8, 4), np.float16)), {}, TypeError, r"b: expected a dtype of float32, got float16"),
        ((draw((4, 8)), draw((4, 8))), {}, ValueError, r"b: expected shape \(K=8, N\), got \(4, 8\)"),
        ((draw((4, 8)), draw((8, 4)), draw((5,))), {}, ValueError, r"bias: expected shape \(N=4,\), got \(5,\)"),
        ((draw((8,)), draw((8, 4))), {}, ValueError, r"a: expected 2 dimensions \(M, K\), got shape \(8,\)"),
        ((draw((0, 8)), draw((8, 4))), {}, ValueError, r"a: expected extents of at least 1, got shape \(0, 8\)"),
        ((draw((4, 8)), draw((8, 4))), {"act": "tanh"}, ValueError, r"act: expected one of 'none', .*, got 'tanh'"),
        ((draw((4, 8)), draw((8, 4))), {"save_z": "yes"}, ValueError, r"save_z: expected one of False, True, got 'yes'"),
        ((draw((4, 8)), None), {}, TypeError, r"b: expected an array, got None"),
        (([[1.0]], draw((8, 4))), {}, TypeError, r"a: expected an array of PyTorch, CuPy, NumPy or the device, got builtins.list"),
        ((draw((4, 8)),), {}, TypeError, r"missing 1 required positional argument: 'b'"),
        ((draw((4, 8)), draw((8, 4))), {"alpha": 2}, TypeError, r"unexpected keyword argument 'alpha'"),
    ],
)
def test_an_argument_that_does_not_fit_is_named_with_the_limit(
    device: Device, arguments: Any, options: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        aicf.ops.gemm_bias_act(*arguments, **options)


def test_the_byte_order_of_an_array_is_seen(device: Device) -> None:
    x = draw((4, 33))
    expected = aicf.ops.softmax(x)
    made = aicf.ops.softmax(x.astype(">f4"))
    assert made.dtype.str == "<f4" and np.array_equal(made, expected)
    mixed = aicf.ops.gemm_bias_act(x.astype(">f4"), draw((33, 8)), draw((8,)).astype(">f4"))
    assert np.array_equal(mixed, aicf.ops.gemm_bias_act(x, draw((33, 8)), draw((8,))))
    half = draw((8, 16), np.float16)
    assert np.array_equal(
        aicf.ops.gemm_bias_act(half.astype(">f2"), half, b_layout="nk"), aicf.ops.gemm_bias_act(half, half, b_layout="nk")
    )


def test_a_masked_array_is_refused_by_name(device: Device) -> None:
    with pytest.raises(TypeError, match=r"x: expected an array without a mask, got a masked array; fill it first: values.filled\(0\)"):
        aicf.ops.softmax(np.ma.masked_greater(draw((4, 8)), 1.0))
    with pytest.raises(TypeError, match="bias: expected an array without a mask"):
        aicf.ops.gemm_bias_act(draw((4, 8)), draw((8, 4)), np.ma.masked_greater(draw((4,)), 1.0))


def test_a_thread_may_launch_before_it_has_called_anything(device: Device) -> None:
    """A launcher encodes tensor maps, for which the thread needs a context: kernels by address, and calls that make nothing on the way."""
    a, b = draw((64, 64), ml_dtypes.bfloat16), draw((64, 64), ml_dtypes.bfloat16)
    arrays = {"a": device.asarray(a), "b": device.asarray(b), "y": device.empty((64, 64), ml_dtypes.bfloat16)}
    handle = open_registry().select(
        "gemm_bias_act", Problem({"M": 64, "N": 64, "K": 64}, {"dtype": "bfloat16", "b_layout": "nk"}), HwCaps.of(device)
    )
    workspace = device.allocate(max(handle.workspace_bytes, 1))
    handle.load()
    with ThreadPoolExecutor(1) as pool:
        launch = {name: array.address for name, array in arrays.items()}
        pool.submit(handle.launch, launch, stream=0, workspace=workspace.address).result()
    device.synchronize()
    expected = np.asarray(a, np.float64) @ np.asarray(b, np.float64).T
    assert np.allclose(np.asarray(arrays["y"].copy_to_host(), np.float64), expected, rtol=2**-7, atol=2**-5)


def test_arrays_of_two_places_are_refused(device: Device) -> None:
    with pytest.raises(TypeError, match=r"b: expected an array of NumPy in host memory as a is, got one of device on the device"):
        aicf.ops.gemm_bias_act(draw((4, 8)), device.asarray(draw((8, 4))))


def test_another_device_that_is_current_is_an_error(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    call = OpCall("softmax", open_registry())
    x = device.asarray(draw((4, 8)))
    monkeypatch.setattr(Cudart, "query_int", lambda self, name, *values: 1 if name == "cudaGetDevice" else 0)
    with pytest.raises(ValueError, match=r"device 1 is current; arrays are on device 0"):
        call.caller(x)
    assert call.caller.count_plans() == 0


def test_columns_that_are_apart_and_rows_that_overlap_are_refused(device: Device) -> None:
    buffer = device.allocate(4096)
    with pytest.raises(ValueError, match=r"x: expected contiguous rows \(last stride 1 element\), got strides \(16, 2\)"):
        aicf.ops.softmax(buffer.view((4, 8), np.float32, strides_bytes=(64, 8)))


def test_a_function_has_its_signature_and_says_what_it_takes(device: Device) -> None:
    names = list(inspect.signature(aicf.ops.gemm_bias_act).parameters)
    assert names[:4] == ["a", "b", "bias", "residual"]
    # The first option is next to the inputs, of which the op's interface may have more by now.
    assert names[len(OpCall("gemm_bias_act", open_registry()).signature.inputs)] == "act"
    assert inspect.signature(aicf.ops.gemm_bias_act).parameters["bias"].default is None
    assert "b (input): [K, N] where b_layout is kn or [N, K] where b_layout is nk" in str(aicf.ops.gemm_bias_act.__doc__)
    assert "softmax" in dir(aicf.ops)
    with pytest.raises(AttributeError, match=r"no attribute 'conv'; frozen ops: .*gemm_bias_act"):
        _ = aicf.ops.conv


def test_a_handle_launches_on_addresses_and_holds_them_against_its_alignment(device: Device) -> None:
    values = draw((8, 256))
    x, y = device.asarray(values), device.empty((8, 256))
    stream = device.create_stream()
    handle = Registry().select("softmax", Problem({"rows": 8, "columns": 256}), HwCaps.of(device))
    handle.launch({"x": x.address, "y": y.address}, stream=stream.handle)
    stream.synchronize()
    check(SOFTMAX, OpProblem({"rows": 8, "columns": 256}), {"x": values}, {"y": y.copy_to_host()})
    assert handle.workspace_bytes == 0 and handle.capture_safe
    with pytest.raises(ValueError, match=r"the address of y is missing"):
        handle.launch({"x": x.address})
    bf16 = {"dtype": "bfloat16", "b_layout": "nk", "act": "silu"}
    aligned = Registry().select("gemm_bias_act", Problem({"M": 512, "N": 512, "K": 512}, bf16), HwCaps.of(device))
    if aligned.alignment_bytes:
        with pytest.raises(ValueError, match=r"address of a = 0x1002: .* needs a multiple of 16 bytes"):
            aligned.launch({"a": 0x1002, "b": 0x1000, "y": 0x1000})


def test_a_kernel_that_refuses_says_why(device: Device) -> None:
    handle = Registry().select("softmax", Problem({"rows": 8, "columns": 8}), HwCaps.of(device))
    params = handle.make_params({"x": 0x1000, "y": 0x2000})
    params.rows = 0
    with pytest.raises(LaunchError, match=r"softmax/.*: .*rows"):
        handle.load().launch(params, 0, 0)


def test_the_lean_path_takes_nothing_on_trust(device: Device) -> None:
    extension = load_extension()
    call = OpCall("transpose", open_registry())
    for values, names in (((), {}), ((1, 2), {}), ((1,), {"x": 1}), ((), {"z": 1})):
        with pytest.raises(TypeError, match=r"by position or by name, once each"):
            call.caller(*values, **names)
    with pytest.raises(ValueError, match=r"num_inputs must be in 1..8"):
        extension.Caller(0, (), 1, print, print, ValueError)
    with pytest.raises(ValueError, match=r"there must be one name for each argument, at most 32"):
        extension.Caller(1, ((0, 1),), 1, print, print, ValueError, names=("x",))
    params = bytes(8)
    bad_offset = extension.Caller(1, (), 16, lambda x: (1, params, (8,), ()), print, ValueError)
    with pytest.raises(ValueError, match=r"offset lies outside"):
        bad_offset(device.asarray(draw((2, 2))))
