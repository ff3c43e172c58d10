"""Finding the GPU, and loading the one ``libcudart.so.13`` to which everything in this process then binds.

The dynamic loader knows libraries by SONAME: whichever ``libcudart.so.13`` is loaded first serves every kernel library that is loaded
later. So the choice between NVIDIA's runtime and the emulated device's is made here, once, and cannot be changed in the process.
"""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
from dataclasses import dataclass
from pathlib import Path

from device.interface import UnavailableError
from device.settings import PARTS_DIR, Settings

SONAME = "libcudart.so.13"


@dataclass(frozen=True)
class GpuFinding:
    """How many GPUs the driver offers, and in words how that was found out."""

    count: int
    reason: str


def find_gpus() -> GpuFinding:
    """Ask the CUDA driver for its GPUs; cheap where there is no driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return GpuFinding(0, "no CUDA driver (libcuda.so.1) on this machine")
    if code := driver.cuInit(0):
        return GpuFinding(0, f"the CUDA driver does not start (cuInit returned {code})")
    count = ctypes.c_int()
    if code := driver.cuDeviceGetCount(ctypes.byref(count)):
        return GpuFinding(0, f"the CUDA driver does not list its GPUs (cuDeviceGetCount returned {code})")
    return GpuFinding(count.value, f"the CUDA driver offers {count.value} GPU{'' if count.value == 1 else 's'}")


def find_emulator_library(settings: Settings) -> Path:
    """Return the emulator's library: ``AICF_EMULATOR_LIBRARY``, else the installed one, else the one of a development build.

    Raises :class:`UnavailableError` naming the places that were looked at.
    """
    if settings.emulator_library is not None:
        if not settings.emulator_library.is_file():
            raise UnavailableError(f"AICF_EMULATOR_LIBRARY={settings.emulator_library}: no such file")
        return settings.emulator_library
    places = [folder / SONAME for folder in _find_package_folders("aicf_emulator")]
    places.append(PARTS_DIR / "build" / "emulator" / SONAME)
    for path in places:
        if path.is_file():
            return path
    looked = "\n  ".join(map(str, places))
    raise UnavailableError(f"the emulated device's {SONAME} is not built: run `make env` in the project. Looked at:\n  {looked}")


def find_cuda_library() -> Path | None:
    """Return NVIDIA's ``libcudart.so.13`` from the compiler wheels or the toolkit beside nvcc; None leaves it to the dynamic loader."""
    folders = [folder / "cu13" / "lib" for folder in _find_package_folders("nvidia")]
    folders += [folder / "cuda_runtime" / "lib" for folder in _find_package_folders("nvidia")]
    nvcc = shutil.which("nvcc")
    toolkits = [Path(nvcc).resolve().parents[1]] if nvcc else []
    for toolkit in (*toolkits, Path("/usr/local/cuda")):
        folders += [toolkit / "lib64", toolkit / "targets" / "x86_64-linux" / "lib"]
    return next((folder / SONAME for folder in folders if (folder / SONAME).is_file()), None)


def load_emulator(settings: Settings) -> ctypes.CDLL:
    """Load the emulator's runtime for the whole process.

    Raises :class:`UnavailableError` when it is missing, cannot be loaded, or another ``libcudart.so.13`` came first.
    """
    path = find_emulator_library(settings)
    if (loaded := find_loaded_library()) is not None and not loaded.samefile(path):
        raise UnavailableError(
            f"another {SONAME} is loaded already ({loaded}), so kernels would not reach the emulated device ({path}).\n"
            "Open the device before anything that loads the CUDA runtime (a CUDA build of torch, say), or use a process of its own."
        )
    library = _load(path)
    if not hasattr(library, "aicfEmulatorVersion"):
        raise UnavailableError(f"{path} is not the emulated device's library: it has no aicfEmulatorVersion")
    library.aicfEmulatorVersion.restype = ctypes.c_char_p
    if library.aicfEmulatorVersion().endswith(b" none"):
        raise UnavailableError(
            f"{path} was built on another machine, for x86-64 levels that this CPU does not have: "
            "build it again here, with `touch device/emulator/CMakeLists.txt && make env`"
        )
    return library


def load_cuda() -> ctypes.CDLL:
    """Load NVIDIA's runtime for the whole process, or take the one that is loaded already.

    Raises :class:`UnavailableError` when there is none, or the emulator's came first.
    """
    path = find_loaded_library() or find_cuda_library()
    library = _load(path if path is not None else SONAME)
    if hasattr(library, "aicfEmulatorVersion"):
        raise UnavailableError(
            f"the emulated device's {SONAME} ({path}) is loaded in this process, so a GPU cannot be used in it too.\n"
            "Use one device in a process: start another one with AICF_DEVICE=cuda."
        )
    return library


def find_loaded_library(maps: Path = Path("/proc/self/maps")) -> Path | None:
    """Return the file of the ``libcudart.so.13`` that is mapped into this process, if there is one."""
    for line in maps.read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and _is_cudart(Path(fields[5])):
            return Path(fields[5])
    return None


def _is_cudart(path: Path) -> bool:
    # A link to libcudart.so.13.0.96 is mapped under the name of its target.
    return (path.name == SONAME or path.name.startswith(SONAME + ".")) and path.is_file()


def _load(path: Path | str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        remedy = "pip install 'nvidia-cuda-runtime==13.0.*'" if path == SONAME else "install the project again"
        raise UnavailableError(f"cannot load {path}: {error}\n({remedy})") from error


def _find_package_folders(name: str) -> list[Path]:
    """Return the folders of a package without importing it; namespace packages may have several."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.submodule_search_locations is None:
        return []
    return [Path(folder) for folder in spec.submodule_search_locations]
