"""One CUDA device, real or emulated, under one interface.

Importing this package loads no library and looks for no device; :func:`open_device` does.
"""

from __future__ import annotations

import importlib.util
import threading
from dataclasses import dataclass

from device.cuda import CudaDevice
from device.emulated import EmulatedDevice
from device.interface import Buffer, Device, DeviceArray, DeviceError, DeviceProperties, Event, Graph, KernelNode, Stream, UnavailableError
from device.loader import find_gpus
from device.observer import LaunchCounters, Observer, Report
from device.settings import DEVICES, SettingError, Settings, parse_choice, read_settings

__all__ = [
    "Buffer",
    "Choice",
    "Device",
    "DeviceArray",
    "DeviceError",
    "DeviceProperties",
    "Event",
    "Graph",
    "KernelNode",
    "LaunchCounters",
    "Observer",
    "Report",
    "SettingError",
    "Settings",
    "Stream",
    "UnavailableError",
    "choose_device",
    "open_device",
    "read_settings",
]

_opened: dict[str, Device] = {}
_opening = threading.Lock()


@dataclass(frozen=True)
class Choice:
    """Which device it is to be (``cuda`` or ``emulated``), and why."""

    name: str
    reason: str


def choose_device(choice: str | None = None) -> Choice:
    """Resolve ``auto``, ``cuda`` or ``emulated`` (None: ``AICF_DEVICE``) without opening the device.

    Raises :class:`SettingError` for any other word.
    """
    word = read_settings().device if choice is None else parse_choice("device", choice, DEVICES)
    if word != "auto":
        return Choice(word, "asked for")
    finding = find_gpus()
    if not finding.count:
        return Choice("emulated", finding.reason)
    if importlib.util.find_spec("cupy") is None:
        return Choice("emulated", f"{finding.reason}, but CuPy is not installed: pip install cupy-cuda13x")
    return Choice("cuda", finding.reason)


def open_device(choice: str | None = None) -> Device:
    """Return this process's device; the first call opens it, later ones return the same.

    ``choice`` is ``auto``, ``cuda`` or ``emulated``; None takes it from ``AICF_DEVICE``. A process has one device: kernels bind to the
    CUDA runtime that was loaded first. Raises :class:`SettingError` for an unknown word and :class:`UnavailableError`, with the
    remedy, when the device is not to be had or the other one is open. Any thread may call it; the others wait for the one that opens.
    """
    settings = read_settings()
    word = settings.device if choice is None else parse_choice("device", choice, DEVICES)
    with _opening:
        if _opened and word in ("auto", *_opened):
            return next(iter(_opened.values()))
        name = choose_device(word).name
        if _opened:
            raise UnavailableError(f"this process has opened the {next(iter(_opened))} device; start another one for the {name} device")
        _opened[name] = _open(name, settings)
        return _opened[name]


def _open(name: str, settings: Settings) -> Device:
    if name == "cuda":
        return CudaDevice()
    return EmulatedDevice(settings)
