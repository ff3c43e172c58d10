"""The emulated device: our own ``libcudart.so.13``, which runs a kernel's PTX on the CPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from ctypes import CDLL, c_char_p, c_int, c_ulonglong
from typing import Any

from device.cudart import ERROR_INITIALIZATION, Cudart
from device.interface import DeviceError
from device.loader import load_emulator
from device.memory import RuntimeArray, RuntimeBuffer
from device.observer import KernelLines, LaunchCounters, LineCounters, Observer, Report
from device.runtime import RuntimeDevice
from device.settings import SettingError, Settings

_DLPACK_CPU = 1
_DLPACK_EXTENSION = 12  # kDLExtDev: no device type of DLPack stands for emulated memory, and kDLCUDA would be a lie


class EmulatedArray(RuntimeArray):
    """An array in emulated device memory. DLPack consumers get a copy in host memory, and only where they ask for one."""

    __slots__ = ()

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's extension device: neither the host nor a GPU can follow the pointer."""
        return _DLPACK_EXTENSION, 0

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export a host copy, for ``dl_device=(1, 0)`` (``numpy.from_dlpack(array, device="cpu")``); anything else raises BufferError."""
        if dl_device is None or tuple(dl_device) != (_DLPACK_CPU, 0):
            raise BufferError("memory of the emulated device cannot be shared; ask for a host copy: numpy.from_dlpack(array, device='cpu')")
        if copy is False:
            raise BufferError("memory of the emulated device cannot reach the host without a copy: drop copy=False")
        if stream is not None:
            raise BufferError("an export to the host takes no stream")
        return self.copy_to_host().__dlpack__(max_version=max_version)


class EmulatedBuffer(RuntimeBuffer):
    """A buffer in emulated device memory."""

    array_class = EmulatedArray


class EmulatorObserver(Observer):
    """Sanitizer, counters and options of the emulator, through the functions of ``aicf_emulator.h``."""

    def __init__(self, library: CDLL) -> None:
        for name in (
            "Version",
            "GetOption",
            "OptionNames",
            "TakeReports",
            "TakeCounters",
            "TakeLines",
            "Allocations",
            "Message",
            "Written",
        ):
            getattr(library, f"aicfEmulator{name}").restype = c_char_p
        library.aicfEmulatorGetOption.argtypes = (c_char_p,)
        library.aicfEmulatorSetOption.argtypes = (c_char_p, c_char_p)
        library.aicfEmulatorSetOption.restype = c_int
        library.aicfEmulatorWritten.argtypes = (c_ulonglong, c_ulonglong)
        library.aicfEmulatorForgetWritten.argtypes = (c_ulonglong,)
        library.aicfEmulatorForgetWritten.restype = c_int
        library.aicfEmulatorClearError.restype = c_int
        self._library = library
        # Told whether there are checks, whenever they change.
        self.when_checking: Callable[[bool], None] = lambda are_checks: None

    @property
    def version(self) -> str:
        """Interface version and instruction-set level, as in ``"1 x86-64-v3"``."""
        return _decode(self._library.aicfEmulatorVersion())

    def enable(self, checks: Sequence[str], *, counters: bool) -> None:
        """Run exactly these checks from now on; raises ValueError for a name that is none of :attr:`Observer.CHECKS`."""
        if unknown := [name for name in checks if name not in self.CHECKS]:
            raise ValueError(f"unknown check {', '.join(unknown)}; there are: {', '.join(self.CHECKS)}")
        self.set_option("checks", ",".join(checks) or "none")
        self.set_option("counters", str(int(counters)))

    def enabled(self) -> tuple[tuple[str, ...], bool]:
        """Return the checks in force and whether counters are on."""
        text = self.get_option("checks")
        names = self.CHECKS if text == "all" else tuple(name for name in text.split(",") if name in self.CHECKS)
        return names, self.get_option("counters") == "1"

    def set_option(self, name: str, value: str) -> None:
        """Set an option of the emulator (``schedule``, ``seed``, ``workers``, ...); raises ValueError with the emulator's reason.

        Where a variable ``AICF_EMULATED_*`` of the environment cannot be obeyed, that reason is a :class:`SettingError`.
        """
        if code := self._library.aicfEmulatorSetOption(name.encode(), value.encode()):
            reason = _decode(self._library.aicfEmulatorMessage()) or f"the emulator refuses {name}={value}"
            raise SettingError(reason) if code == ERROR_INITIALIZATION else ValueError(reason)
        if name == "checks":
            self.when_checking(self.get_option("checks") != "none")

    def get_option(self, name: str) -> str:
        """Return an option's value; raises ValueError when there is no such option."""
        value = self._library.aicfEmulatorGetOption(name.encode())
        if value is None:
            raise ValueError(f"the emulator has no option {name!r}")
        return _decode(value)

    def option_names(self) -> tuple[str, ...]:
        """Return the names of the emulator's options."""
        return tuple(_decode(self._library.aicfEmulatorOptionNames()).split(","))

    def take_reports(self) -> list[Report]:
        """Return the findings since the last call, and forget them."""
        return [_parse_report(item) for item in _parse_list(self._library.aicfEmulatorTakeReports())]

    def take_counters(self) -> list[LaunchCounters]:
        """Return one entry per launch since the last call, and forget them."""
        return [
            LaunchCounters(item["kernel"], _parse_dim3(item["grid"]), _parse_dim3(item["block"]), item["counts"])
            for item in _parse_list(self._library.aicfEmulatorTakeCounters())
        ]

    def lines(self) -> list[KernelLines]:
        """Return the counts by PTX line of each kernel, summed over its launches since the last call, and forget them."""
        return [
            KernelLines(item["kernel"], item["launches"], tuple(LineCounters(**line) for line in item["lines"]))
            for item in _parse_list(self._library.aicfEmulatorTakeLines())
        ]

    def find_written(self, address: int, size_bytes: int) -> list[tuple[int, int]]:
        """Return which of the bytes from ``address`` on were written since they were allocated: [begin, end) offsets, ascending."""
        text = _decode(self._library.aicfEmulatorWritten(address, size_bytes))
        return [(begin, end) for begin, end in json.loads(text)]

    def forget_written(self, address: int) -> None:
        """Let nothing be written of the allocation that begins at an address; its bytes stay. Raises ValueError where there is none."""
        if self._library.aicfEmulatorForgetWritten(address) != 0:
            raise ValueError(f"no live allocation begins at address {address:#x}")

    def clear_error(self) -> None:
        """Forget an error that has ended the context; memory, streams and modules stay as they are."""
        self._library.aicfEmulatorClearError()

    def list_allocations(self) -> list[dict[str, Any]]:
        """Return the live allocations, oldest first: ``address``, ``size_bytes``, ``serial``, ``kind``, ``label``."""
        return _parse_list(self._library.aicfEmulatorAllocations())


class EmulatedDevice(RuntimeDevice):
    """The emulated device of this process."""

    buffer_class = EmulatedBuffer

    def __init__(self, settings: Settings) -> None:
        library = load_emulator(settings)
        self._observer = EmulatorObserver(library)
        self._observer.set_option("target", settings.target)
        super().__init__(Cudart(library))
        # To the checks, memory that is kept would be neither freed nor uninitialised.
        self._observer.when_checking = lambda are_checks: self.pool.keep(not are_checks)
        self._observer.when_checking(self._observer.get_option("checks") != "none")

    @property
    def observer(self) -> EmulatorObserver:
        """The sanitizer and counters."""
        return self._observer


def _decode(text: bytes | None) -> str:
    return "" if text is None else text.decode("utf-8", "replace")


def _parse_list(text: bytes | None) -> list[dict[str, Any]]:
    try:
        items = json.loads(_decode(text) or "[]")
    except json.JSONDecodeError as error:
        raise DeviceError(f"the emulator's answer is not JSON ({error}): {_decode(text)[:200]!r}") from error
    if not isinstance(items, list):
        raise DeviceError(f"the emulator's answer is not a JSON array: {_decode(text)[:200]!r}")
    return items


def _parse_dim3(value: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = value
    return int(x), int(y), int(z)


def _parse_report(item: dict[str, Any]) -> Report:
    triples = {key: _parse_dim3(item[key]) for key in ("block", "thread")}
    lists = {key: tuple(item[key]) for key in ("inlined_at", "copies")}
    return Report(**{**item, **triples, **lists})
