"""The GPU's own report of its clock during timing, through the driver's ``libnvidia-ml.so.1``; nothing is ever set.

Declarations follow NVIDIA's NVML API reference (R580). Where the library or a query is not there, readings are left out.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

_CLOCK_SM = 1
_TEMPERATURE_GPU = 0
_USER_CLOCK_BIT = 0x2
# Reasons why the clock is below the one asked for; an idle GPU and a user's own setting are no throttling.
_THROTTLE_BITS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


@dataclass(frozen=True)
class Reading:
    """SM clock in MHz, GPU temperature in degrees Celsius, and why the clock is held down ("power cap", ...).

    ``is_fixed`` says that somebody set the clock.
    """

    sm_mhz: float
    temperature_c: float
    throttle_reasons: tuple[str, ...]
    is_fixed: bool = False


class ClockMonitor:
    """Reads one GPU; make it with :func:`open_monitor`."""

    def __init__(self, library: Any, handle: ctypes.c_void_p) -> None:
        self._library = library
        self._handle = handle

    def read(self) -> Reading | None:
        """Return the state now, or None when the driver does not tell."""
        clock, temperature, reasons = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_ulonglong()
        calls = (
            self._library.nvmlDeviceGetClockInfo(self._handle, _CLOCK_SM, ctypes.byref(clock)),
            self._library.nvmlDeviceGetTemperature(self._handle, _TEMPERATURE_GPU, ctypes.byref(temperature)),
            self._library.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle, ctypes.byref(reasons)),
        )
        if any(calls):
            return None
        held = tuple(text for bit, text in _THROTTLE_BITS.items() if reasons.value & bit)
        return Reading(float(clock.value), float(temperature.value), held, bool(reasons.value & _USER_CLOCK_BIT))


def open_monitor(uuid: str, library_name: str = "libnvidia-ml.so.1") -> ClockMonitor | None:
    """Return a monitor of the GPU with this UUID (``GPU-...``), or None where NVML does not reach it."""
    try:
        library = ctypes.CDLL(library_name)
    except OSError:
        return None
    handle = ctypes.c_void_p()
    if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)):
        return None
    return ClockMonitor(library, handle)


class LazyMonitor:
    """A monitor of the GPU with this UUID that is opened when it is first read: the driver takes tens of milliseconds for that, too."""

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid
        self._opened: tuple[ClockMonitor | None] | None = None

    def open(self) -> ClockMonitor | None:
        """Open it now, if it was not yet; None where NVML does not reach the GPU."""
        if self._opened is None:
            self._opened = (open_monitor(self._uuid),)
        return self._opened[0]

    def read(self) -> Reading | None:
        """Return the state now, or None when the driver does not tell."""
        monitor = self.open()
        return None if monitor is None else monitor.read()
