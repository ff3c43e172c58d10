"""The lean path without a GPU: launches that a host function makes, and tensors that offer what PyTorch's offer to C."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from aicf.errors import LaunchError
from aicf.ops.extension import load_extension
from device import Device

FOLDER = Path(__file__).resolve().parent


class Params(ctypes.Structure):
    _fields_ = [
        ("x", ctypes.c_void_p),
        ("y", ctypes.c_void_p),
        ("n", ctypes.c_int64),
        ("workspace", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    ]


def compile_c(name: str, folder: Path, *flags: str) -> Path:
    """Compile one of the C files beside this one to a shared library."""
    path = folder / f"{Path(name).stem}.so"
    words = ["gcc", "-std=gnu17", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", *flags]
    subprocess.run([*words, f"-I{sysconfig.get_path('include')}", str(FOLDER / name), "-o", str(path)], check=True)
    return path


def load_fakes(library: Path, folder: Path) -> ModuleType:
    """Return a module of fake tensors that shares nothing with others: a copy of the library is one of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    copy = shutil.copy(library, folder / library.name)
    spec = importlib.util.spec_from_file_location("fake_tensors", copy)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def register_fakes(fakes: ModuleType) -> Any:
    """Return a new type of fake tensors, made known as PyTorch's is."""
    made = fakes.make_type()
    assert load_extension().register_type(made, is_tracked="requires_grad", is_tracking=fakes.is_grad_enabled)
    return made


class Stub:
    """The launch function, and callers of one input ``x``, one optional input ``w`` and two options, ``act`` and ``keep``, on it."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.library.last_params.restype = ctypes.POINTER(Params)
        self.address = ctypes.cast(self.library.launch, ctypes.c_void_p).value
        self.resolved: list[tuple[Any, ...]] = []
        self.referred: list[tuple[Any, ...]] = []
        self.set_state("go_on", 0)
        self.set_state("device", 0)

    @property
    def last(self) -> Params:
        found: Params = self.library.last_params().contents
        return found

    @property
    def num_launches(self) -> int:
        return int(ctypes.c_int32.in_dll(self.library, "num_launches").value)

    @property
    def num_bound(self) -> int:
        """How often a thread was bound to a device."""
        return int(ctypes.c_int32.in_dll(self.library, "num_bound").value)

    def forget(self) -> None:
        """Let go of the arguments that were seen."""
        self.resolved.clear()
        self.referred.clear()

    def set_state(self, name: str, value: int) -> None:
        """Set ``go_on`` (of launches that wait) or ``device`` or ``stream`` (those that are current)."""
        ctypes.c_int32.in_dll(self.library, name).value = value

    def make_caller(
        self,
        allocate: Any,
        *,
        n: int = 0,
        outputs: int = 1,
        workspace: Any = None,
        shape: tuple[int, ...] = (1,),
        dtype: str = "any",
        resolve: Any = None,
    ) -> Any:
        """Return a caller; no framework has the dtype ``any``, so that outputs are made in Python, by ``allocate(x)``."""

        def resolve_all(*values: Any) -> Any:
            self.resolved.append(values)
            allocations = [(8, shape, dtype, allocate, True, ()) for _ in range(outputs)]
            allocations += [(-1, (64,), "uint8", workspace, False, (64,))] if workspace else []
            offsets = (0, -1 if values[1] is None else 24)
            return self.address, bytes(Params(n=n)), offsets, tuple(allocations)

        def refer(*values: Any) -> str:
            self.referred.append(values)
            return "referred"

        return load_extension().Caller(
            num_inputs=2,
            choices=(("none", "relu"), (False, True)),
            address_step=16,
            resolve=resolve or resolve_all,
            refer=refer,
            error=LaunchError,
            names=("x", "w", "act", "keep"),
            defaults={"w": None, "act": "none", "keep": False},
            get_device=ctypes.cast(self.library.get_device, ctypes.c_void_p).value,
            set_device=ctypes.cast(self.library.set_device, ctypes.c_void_p).value,
        )


class DeviceSpace:
    """Arrays of the device package. ``padding`` and ``offset`` are in elements, the latter behind a multiple of 256 bytes."""

    def __init__(self, device: Device) -> None:
        self.device = device
        names = {"address": "address", "shape": "shape", "strides": "strides_bytes", "dtype": "dtype"}
        load_extension().register_type(type(device.empty((1,))), **names)

    def make(self, shape: tuple[int, int], *, offset: int = 0, padding: int = 0, dtype: str = "float32") -> Any:
        """Return an array."""
        item, pitch = np.dtype(dtype).itemsize, shape[1] + padding
        buffer = self.device.allocate((shape[0] * pitch + offset) * item)
        return buffer.view(shape, dtype, offset_bytes=offset * item, strides_bytes=(pitch * item, item))

    def make_like(self, first: Any) -> Any:
        """Return a new array of the same shape."""
        return self.device.empty(first.shape)

    def find_address(self, array: Any) -> int:
        """Return where an array begins."""
        return int(array.address)


class TorchSpace:
    """PyTorch's tensors, in host memory."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def make(self, shape: tuple[int, int], *, offset: int = 0, padding: int = 0, dtype: str = "float32") -> Any:
        """Return a tensor."""
        pitch = shape[1] + padding
        flat = self.torch.zeros(shape[0] * pitch + offset + 64, dtype=getattr(self.torch, dtype))
        start = -flat.data_ptr() % 256 // flat.element_size() + offset
        return flat[start : start + shape[0] * pitch].view(shape[0], pitch)[:, : shape[1]]

    def make_like(self, first: Any) -> Any:
        """Return a new tensor of the same shape."""
        return self.torch.empty_like(first)

    def find_address(self, array: Any) -> int:
        """Return where a tensor begins."""
        return int(array.data_ptr())


class FakeSpace:
    """Fake tensors, which the extension reads and makes as PyTorch's."""

    def __init__(self, fakes: ModuleType, kind: Any) -> None:
        self.fakes, self.kind = fakes, kind

    def make(self, shape: tuple[int, int], *, offset: int = 0, padding: int = 0, dtype: str = "float32") -> Any:
        """Return a tensor."""
        return self.kind(*shape, offset, padding, dtype)

    def make_like(self, first: Any) -> Any:
        """Return a new tensor of the same shape."""
        return self.kind(*first.shape)

    def find_address(self, array: Any) -> int:
        """Return where a tensor begins."""
        return int(array.address)
