"""Examining the machine: everything the workbench uses, whether it was found, and what to do if not."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from contract.libraries.adapters import describe_version
from contract.libraries.binding import find_cublaslt, open_cublaslt
from device import DeviceError, UnavailableError, choose_device, open_device
from device.settings import VARIABLES, SettingError, find_unknown_variables, read_settings
from device.toolchain import NVCC_VERSION, Toolchain, find_toolchain, name_remedy
from harness.build.store import Store
from harness.errors import BuildError, RecordError, UseError
from harness.profiling.tools import REMEDIES, Tools

_REQUIRED = ("jinja2", "matplotlib", "numpy", "nvtx", "pandas", "pyarrow", "pybind11", "rich", "sqlalchemy", "typer")
_OPTIONAL = {
    "cupy": "needed on a GPU: pip install cupy-cuda13x",
    "torch": "a peer, optional: pip install torch",
    "triton": "a peer, optional: pip install triton",
}


@dataclass(frozen=True)
class Finding:
    """One line of the report. ``status`` is ``ok``, ``optional`` (absent, and the main job runs without it) or ``missing``."""

    subject: str
    status: str
    detail: str
    remedy: str = ""


def examine(device: str | None = None) -> list[Finding]:
    """Look at everything; never raises for what is only missing."""
    findings = [Finding("python", "ok", f"{platform.python_version()} ({sys.executable})")]
    findings += _guard("compilers", _look_at_compilers)
    wrong = _guard("settings", _look_at_settings)
    if not wrong:
        findings += _guard("device", lambda: _look_at_device(device))
        findings += _guard("cache", _look_at_cache)
        findings += _guard("records", _look_at_records)
        findings += _guard("target", lambda: [Finding("target", "ok", read_settings().target)])
    findings += wrong
    findings += _guard("cuBLASLt", _look_at_cublaslt)
    return findings + _look_at_packages() + _look_at_profilers() + _look_at_variables()


def _guard(subject: str, look: Callable[[], list[Finding]]) -> list[Finding]:
    try:
        return look()
    except (UnavailableError, SettingError, UseError, BuildError, RecordError) as error:
        what, _, remedy = str(error).partition("; ")
        return [Finding(subject, "missing", what, remedy)]
    except DeviceError as error:
        return [Finding(subject, "missing", str(error), "AICF_DEVICE=emulated works with no GPU")]


def _look_at_compilers() -> list[Finding]:
    tools = find_toolchain()
    found = [_look_at_nvcc(tools), Finding("g++", "ok", f"{tools.cxx_version} ({tools.cxx})")]
    found.append(Finding("CUDA runtime", "ok", str(tools.cudart_library)))
    for name, path in (("cuobjdump", tools.cuobjdump), ("nvdisasm", tools.nvdisasm)):
        remedy = "" if path else f"pip install nvidia-cuda-{name}"
        found.append(Finding(name, "ok" if path else "optional", str(path) if path else "show --sass needs it", remedy))
    return found


def _look_at_nvcc(tools: Toolchain) -> Finding:
    text = f"{tools.nvcc_version} ({tools.nvcc})"
    if tools.nvcc_version == NVCC_VERSION:
        return Finding("nvcc", "ok", text)
    why = f"what is frozen was made with {NVCC_VERSION}, and does not come out of another to the same machine code"
    return Finding("nvcc", "optional", f"{text}; {why}", name_remedy())


def _look_at_device(choice: str | None) -> list[Finding]:
    reason = choose_device(choice).reason
    device = open_device(choice)
    p = device.properties
    kind = "emulated: correctness and counts, never a GPU's times" if device.is_emulated else f"driver {p.driver_version}, {p.uuid}"
    detail = f"{p.name}, compute capability {p.compute_capability[0]}.{p.compute_capability[1]}, {p.num_sms} SMs; {kind} (chosen: {reason})"
    return [Finding("device", "ok", detail)]


def _look_at_cublaslt() -> list[Finding]:
    try:
        binding = open_cublaslt()
    except UnavailableError:
        return [Finding("cuBLASLt", "optional", "not there: calls get the project's own kernels alone", "pip install nvidia-cublas")]
    return [Finding("cuBLASLt", "ok", f"{describe_version(binding.version)} ({find_cublaslt()})")]


def _look_at_settings() -> list[Finding]:
    read_settings()
    return []


def _look_at_cache() -> list[Finding]:
    store = Store(read_settings().cache_dir)
    store.require_usable()
    return [Finding("cache", "ok", f"{store.root} ({store.size_bytes() / 2**20:.1f} MiB)")]


def _look_at_records() -> list[Finding]:
    url = read_settings().records_url
    if importlib.util.find_spec("sqlalchemy") is None:  # said among the packages
        return []
    from harness.records.database import check_database
    from harness.records.engine import hide_password

    check_database(url)
    return [Finding("records", "ok", hide_password(url))]


def _look_at_packages() -> list[Finding]:
    findings = []
    for name in (*_REQUIRED, *_OPTIONAL):
        required = name in _REQUIRED
        if importlib.util.find_spec(name) is None:
            remedy = "make clean-venv, then any target installs it" if required else _OPTIONAL[name]
            findings.append(Finding(name, "missing" if required else "optional", "not installed", remedy))
            continue
        try:
            findings.append(Finding(name, "ok", version(name)))
        except PackageNotFoundError:  # e.g. cupy, whose distribution is called cupy-cuda13x
            findings.append(Finding(name, "ok", "installed"))
    return findings


def _look_at_profilers() -> list[Finding]:
    tools = Tools()
    found = []
    for name in REMEDIES:
        try:
            found.append(Finding(name, "ok", tools.find(name)))
        except UnavailableError:
            found.append(Finding(name, "optional", "profile uses it on a GPU", REMEDIES[name]))
    return found


def _look_at_variables() -> list[Finding]:
    findings = []
    for variable in VARIABLES:
        value = os.environ.get(variable.name)
        shown = f"{value}" if value else f"unset, {variable.default}"
        findings.append(Finding(variable.name, "ok", f"{shown}  ({variable.meaning})"))
    findings += [Finding(name, "optional", "set, but means nothing here", "check its spelling") for name in find_unknown_variables()]
    return findings
