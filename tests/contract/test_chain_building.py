"""Chains that no op lists, built of the sealed engine without the workbench: what the framework's fusion does where it runs."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from contract import chain_building
from contract.chain_building import build_chain, specialise
from contract.entry_points import EntryPoints
from contract.errors import FrozenError
from contract.expressions import FUNCTIONS, Chain, evaluate, find_bounds, parse_chain
from contract.expressions.evaluate import Draws
from contract.frozen_set import FrozenOp, read_op
from contract.kernels import FrozenKernel
from contract.structs import Status, find_struct, make_params
from device import Device

# Four outputs of as many dtypes, every extent, a mask, two draws, and functions that no listed chain has.
UNSEEN = parse_chain(
    "unseen",
    "x: T, u: T, b: T[columns], r: f32[rows], a: f32[], m: bool -> y: T, z: f32, w: bf16, k: bool; "
    "t = fma(x, r, b) - a; k = (t > u) & m; y = dropout(clip(t, -2, 2), 0.25) if m else dropout(u, 0.5); "
    "z = log1p(abs(t)) + sqrt(square(u) + 1); w = softplus(t) * cos(u)",
)


@pytest.fixture(scope="module")
def frozen() -> FrozenOp:
    return read_op("elementwise")


@pytest.fixture(scope="module")
def engine(frozen: FrozenOp) -> FrozenKernel:
    return next(kernel for kernel in frozen.kernels.values() if kernel.manifest["variant"].startswith("streamed/"))


def _make_inputs(shape: tuple[int, int], dtype: Any) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(3)
    rows, columns = shape
    return {
        "x": rng.standard_normal(shape).astype(dtype),
        "u": rng.standard_normal(shape).astype(dtype),
        "b": rng.standard_normal((1, columns)).astype(dtype),
        "r": rng.standard_normal((rows, 1)).astype(np.float32),
        "a": np.array([[0.5]], np.float32),
        "m": rng.random(shape) < 0.7,
    }


def _make_call(
    device: Device, interface: Mapping[str, Any], chain: Chain, inputs: Mapping[str, NDArray[Any]], dtype: str
) -> tuple[Any, dict[str, Any]]:
    """Return the Params of a call, and the arrays that it is of."""
    shape = next(iter(inputs.values())).shape
    arrays = {f"in{i}": device.asarray(inputs[o.name]) for i, o in enumerate(chain.inputs)}
    arrays |= {"counter": device.asarray(np.array([11, 5], np.int64))} if chain.num_draws else {}
    names = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "bool": np.bool_}
    arrays |= {f"out{i}": device.empty(shape, names[o.find_dtype(dtype)]) for i, o in enumerate(chain.outputs)}
    addresses = {name: array.address for name, array in arrays.items()}
    strides = {name: array.shape[-1] for name, array in arrays.items()}
    sizes = {"rows": shape[0], "columns": shape[1]}
    return make_params(interface, sizes, {"chain": chain.name, "dtype": dtype}, addresses, strides), arrays


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "shape"), [("float32", (5, 1000)), ("bfloat16", (7, 129)), ("float16", (1, 64))])
def test_an_unseen_chain_is_built_of_sealed_sources_and_right(
    device: Device, frozen: FrozenOp, engine: FrozenKernel, dtype: str, shape: tuple[int, int]
) -> None:
    kernel, library = build_chain(engine, UNSEEN, is_emulated=device.is_emulated)
    inputs = _make_inputs(shape, np.dtype(getattr(ml_dtypes, dtype, dtype)) if dtype == "bfloat16" else np.dtype(dtype))
    params, arrays = _make_call(device, specialise(frozen.interface, UNSEEN), UNSEEN, inputs, dtype)
    calls = EntryPoints(kernel.manifest["entry_points"], library)
    assert (calls.supports(params).code, calls.ask_workspace(params)[1]) == (0, 0)
    assert calls.launch(params, 0, 0).code == 0
    device.synchronize()
    draws = Draws(11, 5, np.arange(shape[0] * shape[1]).reshape(shape))
    exact = {name: a if a.dtype == np.bool_ else a.astype(np.float64) for name, a in inputs.items()}
    expected, bounds = evaluate(UNSEEN, exact, draws), find_bounds(UNSEEN, exact, dtype, draws)
    for i, operand in enumerate(UNSEEN.outputs):
        found = arrays[f"out{i}"].copy_to_host().astype(np.float64)
        assert (np.abs(found - expected[operand.name]) <= bounds[operand.name]).all(), operand.name


_TABLE = sorted(FUNCTIONS)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(_TABLE), 4))
def test_every_function_of_the_table_is_right_on_the_device(device: Device, frozen: FrozenOp, engine: FrozenKernel, first: int) -> None:
    names = [f"x{i}" for i in range(8)]
    functions = [FUNCTIONS[name] for name in _TABLE[first : first + 4]]
    # Every input is used, and the first ones are what the functions are given; zero times a number of moderate size is nothing.
    rest = " + ".join(f"0 * {name}" for name in names)
    calls = [f"{f.name}({', '.join(names[: len(f.arguments)])})" for f in functions]
    body = "; ".join(f"y{i} = {call} + ({rest})" for i, call in enumerate(calls))
    chain = parse_chain(
        f"table{first}", f"{', '.join(f'{n}: T' for n in names)} -> {', '.join(f'y{i}: f32' for i in range(len(calls)))}; {body}"
    )
    rng = np.random.default_rng(first)
    inputs = {name: rng.uniform(0.0625, 3.0, (3, 257)).astype(np.float32) for name in names}
    inputs["x0"][1:] *= -1.0  # NaN of roots and logarithms, too
    kernel, library = build_chain(engine, chain, is_emulated=device.is_emulated)
    params, arrays = _make_call(device, specialise(frozen.interface, chain), chain, inputs, "float32")
    assert EntryPoints(kernel.manifest["entry_points"], library).launch(params, 0, 0).read_reason() == ""
    device.synchronize()
    exact = {name: a.astype(np.float64) for name, a in inputs.items()}
    expected, bounds = evaluate(chain, exact), find_bounds(chain, exact, "float32")
    for i, call in enumerate(calls):
        found = arrays[f"out{i}"].copy_to_host().astype(np.float64)
        wanted, bound = expected[f"y{i}"], bounds[f"y{i}"]
        assert np.array_equal(np.isnan(found), np.isnan(wanted)), call
        assert (np.abs(found - wanted) <= bound)[~np.isnan(wanted)].all(), call


def _ask(calls: EntryPoints, params: ctypes.Structure) -> str:
    status: Status = calls.supports(params)
    return status.read_reason()


@pytest.mark.slow
def test_a_call_is_checked_by_the_chains_own_operands(device: Device, frozen: FrozenOp, engine: FrozenKernel) -> None:
    kernel, library = build_chain(engine, UNSEEN, is_emulated=device.is_emulated)
    calls = EntryPoints(kernel.manifest["entry_points"], library)
    params, _ = _make_call(device, specialise(frozen.interface, UNSEEN), UNSEEN, _make_inputs((4, 8), np.float32), "float32")
    for field, value, reason in (
        ("in5", None, "in5: null pointer"),
        ("in6", params.in0, "in6: must be null"),
        ("counter", None, "counter: null pointer"),
        ("out2", params.out1, "out2: expected memory of its own, got an array that overlaps out1"),
        ("ldin1", 7, "in1: row stride 7 is smaller than a row of 8 elements"),
        ("out1", params.out1 + 2, "out1: address"),
        ("dtype", 7, "dtype = 7: is not one of its choices"),
        ("chain", 0, "computes chain -1, unseen, alone"),
        ("rows", 0, "rows = 0"),
    ):
        before = getattr(params, field)
        setattr(params, field, value)
        assert reason in _ask(calls, params)
        setattr(params, field, before)
    assert _ask(calls, params) == ""


def test_it_is_built_once_and_again_where_the_chain_or_the_engine_is_another(device: Device, engine: FrozenKernel) -> None:
    kernel, library = build_chain(engine, UNSEEN, is_emulated=device.is_emulated)
    modified = library.stat().st_mtime_ns
    again = build_chain(engine, UNSEEN, is_emulated=device.is_emulated)
    assert again == (kernel, library) and library.stat().st_mtime_ns == modified
    assert "launch__unseen__" in kernel.manifest["entry_points"]["launch"]
    assert (kernel.manifest["seal"], engine.manifest["seal"] != "") == ("", True)


def test_a_gpu_gets_machine_code_of_an_optimised_launcher_and_the_emulated_device_neither(
    engine: FrozenKernel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[tuple[Path, FrozenKernel]] = []
    monkeypatch.setattr(chain_building, "find_or_build", lambda *asked: made.append(asked[:2]))
    for is_emulated in (False, True):
        assert build_chain(engine, UNSEEN, tmp_path, is_emulated=is_emulated)[0] == made[is_emulated][1]
    cuda, emulated = (kernel.flags for _, kernel in made)
    told = [(a, b) for a, b in zip(cuda, emulated, strict=True) if a != b]
    assert told == [("-O2", "-O0"), ("arch=compute_90a,code=[sm_90a,compute_90a]", "arch=compute_90a,code=[compute_90a]")]
    assert made[0][0] != made[1][0], "what one device's process left in the cache is taken for the other's"


def test_what_is_not_sealed_is_not_built(engine: FrozenKernel, tmp_path: Path) -> None:
    stranger = replace(engine, manifest=dict(engine.manifest) | {"build": dict(engine.manifest["build"]) | {"flags": ["-O3"]}})
    with pytest.raises(FrozenError, match="is not made for a chain"):
        build_chain(stranger, UNSEEN, tmp_path)
    changed = dict(engine.manifest["files"]) | {"sources/elementwise/kernels.cu": "0" * 64}
    with pytest.raises(FrozenError, match=r"kernels\.cu: is not what was sealed"):
        build_chain(replace(engine, manifest=dict(engine.manifest) | {"files": changed}), UNSEEN, tmp_path)


def test_the_workbench_has_no_part_in_it() -> None:
    code = (
        "import sys, contract.chain_building, contract.frozen_set; from contract.expressions import parse_chain; "
        "parse_chain('c', 'x: T -> y: T; y = relu(x)'); assert not [m for m in sys.modules if m.split('.')[0] in ('harness', 'ops')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_struct_is_the_ops_whatever_the_chain(frozen: FrozenOp) -> None:
    assert find_struct(specialise(frozen.interface, UNSEEN)) is find_struct(frozen.interface)
