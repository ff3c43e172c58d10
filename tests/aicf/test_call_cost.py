"""What calls cost on the host: ``pytest tests/aicf/test_call_cost.py --benchmark-enable`` measures them without their launch.

The aim is 3 us over the launch, on the machine of an H200. Arrays are small: of large ones the pages would be what is measured.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aicf.errors import LaunchError
from aicf.ops.calling import OpCall
from aicf.ops.extension import load_extension
from aicf.ops.functions import write_function
from aicf.registry import open_registry
from device import Device
from tests.aicf.lean_stub import DeviceSpace, Params, Stub


def make_gemm_caller(stub: Stub, signature: Any, make: Any, dtype: str) -> Any:
    """Return a caller of a gemm of 16 x 16 x 16 that launches nothing."""

    def resolve(*values: Any) -> Any:
        return (
            stub.address,
            bytes(Params()),
            (0, *(24 for _ in signature.inputs[1:])),
            ((8, (16, 16), dtype, make, True, ((16, 16), (16, 1))),),
        )

    options = signature.options
    return load_extension().Caller(
        num_inputs=len(signature.inputs),
        choices=tuple(tuple(o["choices"]) for o in options),
        address_step=16,
        resolve=resolve,
        refer=resolve,
        error=LaunchError,
        names=(*(name for name, _ in signature.inputs), *(o["name"] for o in options)),
        defaults={name: None for name, is_optional in signature.inputs if is_optional} | {o["name"]: o["default"] for o in options},
    )


@pytest.fixture
def signature(device: Device) -> Any:
    return OpCall("gemm_bias_act", open_registry()).signature


def test_cost_of_a_call_on_tensors(benchmark: Any, torch: Any, signature: Any, stub: Stub) -> None:
    gemm = write_function(signature, make_gemm_caller(stub, signature, None, "float32"), print)
    a, w, bias = (torch.zeros(16, 16) for _ in range(3))
    assert benchmark(lambda: gemm(a, w, bias, act="silu", b_layout="nk")).shape == (16, 16)


def test_cost_of_a_call_on_tensors_made_in_python(benchmark: Any, torch: Any, signature: Any, stub: Stub) -> None:
    """As where PyTorch's C interface is not what it was."""
    make = torch.Tensor.new_empty_strided  # as aicf.ops.arrays has it
    gemm = write_function(signature, make_gemm_caller(stub, signature, make, "any"), print)
    a, w, bias = (torch.zeros(16, 16) for _ in range(3))
    assert benchmark(lambda: gemm(a, w, bias, act="silu", b_layout="nk")).shape == (16, 16)


def test_cost_of_a_custom_op_on_tensors(benchmark: Any, torch: Any, signature: Any, stub: Stub) -> None:
    torch_ops = pytest.importorskip("aicf.ops.torch_ops")
    caller = make_gemm_caller(stub, signature, None, "float32")
    own = SimpleNamespace(op="stub", inputs=signature.inputs, options=signature.options)
    torch_ops.register(SimpleNamespace(signature=own, caller=caller))
    a, w, bias = (torch.zeros(16, 16) for _ in range(3))
    options = [{"act": "silu", "b_layout": "nk"}.get(o["name"], o["default"]) for o in signature.options]
    missing = [None for _ in signature.inputs[3:]]
    (made,) = benchmark(lambda: torch.ops.aicf.stub(a, w, bias, *missing, *options))
    assert made.shape == (16, 16)


def test_cost_of_an_output_alone(benchmark: Any, torch: Any) -> None:
    """What PyTorch's quickest function in Python costs, to compare."""
    a = torch.zeros(16, 16)
    assert benchmark(lambda: a.new_empty_strided((16, 16), (16, 1))).shape == (16, 16)


def test_cost_of_a_call_on_device_arrays(benchmark: Any, device: Device, stub: Stub) -> None:
    space = DeviceSpace(device)
    x, out = space.make((16, 16)), space.make((16, 16))
    caller = stub.make_caller(lambda first: out)
    assert benchmark(lambda: caller(x, act="relu")) is out
    assert (stub.last.x, stub.last.y) == (x.address, out.address)
