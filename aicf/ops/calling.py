"""One op as a Python function: a call is resolved once, and its plan is then kept for the fast path (``calls/calls.cpp``)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from aicf.errors import LaunchError
from aicf.ops.arguments import Signature
from aicf.ops.arrays import Framework, View, copy_from_numpy, copy_to_numpy, find_framework, overwrite_from_numpy
from aicf.ops.extension import load_extension
from aicf.registry import HwCaps, KernelHandle, Registry
from contract.calls import TensorLayout
from contract.structs import find_struct
from device import UnavailableError, open_device
from device.cudart import Cudart
from device.runtime import RuntimeDevice

# An array to be made: its address's offset in the Params (-1: the workspace), shape, dtype, and a framework's function that makes it.
AllocationRow = tuple[int, tuple[int, ...], str, Any, bool, tuple[Any, ...]]
PlanRow = tuple[int, bytes, tuple[int, ...], tuple[AllocationRow, ...]]
# Returns the result of a call on PyTorch's tensors that PyTorch has to see, and None for any other. Takes the call, tensors and arguments.
TorchDispatch = Callable[["OpCall", Iterable[Any], Sequence[Any]], Any]
FindFunction = Callable[[str], Callable[..., Any]]


class OpCall:
    """The calls of one op. ``caller`` takes the inputs and the options, by position or name, and returns the outputs in their order.

    One output is returned as it is, several as a tuple. ``dispatch`` is asked about PyTorch's tensors; without it they
    are arrays like any other. ``find_function`` returns another op's function, which a backward pass calls, or raises AttributeError.
    """

    def __init__(
        self, op: str, registry: Registry, dispatch: TorchDispatch | None = None, find_function: FindFunction | None = None
    ) -> None:
        self.find_function = find_function
        self.registry = registry
        self._dispatch = dispatch
        known = registry.read(op)
        tables = registry.find_tables(op, HwCaps.of(open_device()))
        self.signature = Signature(tables.interface, tables.ties)
        self.signature.require_callable()
        inputs, options = self.signature.inputs, self.signature.options
        self.caller = load_extension().Caller(
            num_inputs=len(inputs),
            choices=tuple(tuple(a["choices"]) for a in options),
            address_step=known.address_step,
            resolve=self.resolve,
            refer=self.refer,
            error=LaunchError,
            names=(*(name for name, _ in inputs), *(a["name"] for a in options)),
            defaults={name: None for name, is_optional in inputs if is_optional} | {a["name"]: a["default"] for a in options},
            get_device=_find_address(_open_runtime().library.cudaGetDevice),
            set_device=_find_address(_open_runtime().library.cudaSetDevice),
        )

    def resolve(self, *values: Any) -> PlanRow | None:
        """Return the plan of a call on device arrays, None for arrays in host memory, which no plan can stand for.

        Raises TypeError or ValueError naming the argument that does not fit.
        """
        framework, arrays = self.find_arrays(values)
        if framework.is_host:
            return None
        handle, _ = self.select(framework, arrays, values)
        struct = find_struct(handle.interface.row)
        layouts = handle.interface.find_layouts(handle.query.values)
        fields = {layout.name: getattr(struct, layout.field).offset for layout in layouts}
        offsets = tuple(fields[name] if name in arrays else -1 for name, _ in self.signature.inputs)
        first = next(iter(arrays.values()))
        allocations = []
        for layout, shape in self.list_outputs(handle):
            function, with_first, arguments = framework.find_allocator(first, shape, layout.dtype)
            allocations.append((fields[layout.name], shape, layout.dtype, function, with_first, arguments))
        if (wanted := handle.workspace_bytes) > 0:
            function, with_first, arguments = framework.find_allocator(first, (wanted,), "uint8")
            allocations.append((-1, (wanted,), "uint8", function, with_first, arguments))
        # A call without addresses: NULL for all tensors, which the plan's offsets fill in.
        params = bytes(handle.make_params({}))
        return handle.load().launch_address, params, offsets, tuple(allocations)

    def refer(self, *values: Any) -> Any:
        """Return the result of a call that has no plan (yet): of host arrays, of tensors that are recorded, of types that are new."""
        framework, arrays = self.find_arrays(values)
        first = next(iter(arrays.values()))
        if self._dispatch is not None and framework.name == "PyTorch":
            made = self._dispatch(self, arrays.values(), values)
            if made is not None:
                return made
        if framework.is_host:
            return self.run_on_host(framework, arrays, values)
        kinds = {type(array) for array in arrays.values()}
        if not kinds <= _read_types:
            registered = [framework.register(load_extension(), array) for array in arrays.values()]
            if all(registered):
                _read_types.update(kinds)
                return self.caller(*values)
        return self.run_slowly(framework, arrays, first, values)

    def find_arrays(self, values: Sequence[Any]) -> tuple[Framework, dict[str, Any]]:
        """Return the given arrays by name, and the one framework that all are of; raises TypeError naming the one that is not."""
        arrays: dict[str, Any] = {}
        found: Framework | None = None
        for (name, is_optional), value in zip(self.signature.inputs, values, strict=False):
            if value is None and is_optional:
                continue
            if value is None:
                raise TypeError(f"{name}: expected an array, got None")
            framework = find_framework(name, value)
            if found is not None and framework is not found:
                other = next(iter(arrays))
                raise TypeError(f"{name}: expected an array of {found.name} {_say_where(found)} as {other} is, got {_say(framework)}")
            found = framework
            arrays[name] = value
        assert found is not None  # an op without a required input has no signature
        if not found.is_host and found.name != "device" and open_device().is_emulated:
            raise UnavailableError(f"{found.name}'s arrays are on a GPU, and the emulated device is open: start with AICF_DEVICE=cuda")
        if not found.is_host and (current := _open_runtime().query_int("cudaGetDevice")) != 0:
            raise ValueError(f"device {current} is current; arrays are on device 0, and launches go to the one that is current")
        return found, arrays

    def select(self, framework: Framework, arrays: dict[str, Any], values: Sequence[Any]) -> tuple[KernelHandle, dict[str, View]]:
        """Return the kernel for a call, and its arrays as views."""
        views = {name: framework.view(name, array) for name, array in arrays.items()}
        problem = self.signature.make_problem(views, self.name_options(values))
        return self.registry.select(self.signature.op, problem, HwCaps.of(open_device())), views

    def name_options(self, values: Sequence[Any]) -> dict[str, Any]:
        """Return the options of a call by name."""
        names = [a["name"] for a in self.signature.options]
        return dict(zip(names, values[len(self.signature.inputs) :], strict=True))

    def count_outputs(self, values: Sequence[Any]) -> int:
        """Return how many outputs a call has."""
        given = {name for (name, _), value in zip(self.signature.inputs, values, strict=False) if value is not None}
        presence = {attribute: name in given for name, attribute in self.signature.presence.items()}
        return len(self.signature.list_outputs(presence | self.name_options(values)))

    def list_outputs(self, handle: KernelHandle) -> list[tuple[TensorLayout, tuple[int, ...]]]:
        """Return a call's outputs and their shapes."""
        layouts = handle.interface.find_layouts(handle.query.values)
        return [(each, tuple(each.list_lengths(handle.query.by_size))) for each in layouts if each.role == "output"]

    def run_on_host(self, framework: Framework, arrays: dict[str, Any], values: Sequence[Any]) -> Any:
        """Copy host arrays to the device, run there, and copy back the outputs and what was changed in place."""
        self.select(framework, arrays, values)  # checks all, before anything is copied
        device = open_device()
        copied = {name: device.asarray(copy_to_numpy(framework, array)) for name, array in arrays.items()}
        inputs = [copied.get(name) for name, _ in self.signature.inputs]
        made = self.caller(*inputs, *values[len(inputs) :])
        for name in self.signature.changed & copied.keys():
            overwrite_from_numpy(framework, arrays[name], copied[name].copy_to_host())
        first = next(iter(arrays.values()))
        outputs = [copy_from_numpy(framework, each.copy_to_host(), first) for each in (made if isinstance(made, tuple) else (made,))]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def run_slowly(self, framework: Framework, arrays: dict[str, Any], first: Any, values: Sequence[Any]) -> Any:
        """Run a call on device arrays whose type the lean path cannot read."""
        handle, views = self.select(framework, arrays, values)
        addresses = {name: view.address for name, view in views.items()}
        outputs = []
        for layout, shape in self.list_outputs(handle):
            function, with_first, arguments = framework.find_allocator(first, shape, layout.dtype)
            outputs.append(function(first, *arguments) if with_first else function(*arguments))
            addresses[layout.name] = framework.view(layout.name, outputs[-1]).address
        workspace = 0
        if (wanted := handle.workspace_bytes) > 0:
            function, with_first, arguments = framework.find_allocator(first, (wanted,), "uint8")
            held = function(first, *arguments) if with_first else function(*arguments)
            workspace = framework.view("workspace", held).address
        handle.launch(addresses, stream=framework.current_stream(), workspace=workspace)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


_read_types: set[type[Any]] = set()


def _open_runtime() -> Cudart:
    device = open_device()
    assert isinstance(device, RuntimeDevice)  # both kinds are
    return device.cudart


def _find_address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _say_where(framework: Framework) -> str:
    return "in host memory" if framework.is_host else "on the device"


def _say(framework: Framework) -> str:
    return f"one of {framework.name} {_say_where(framework)}"
