"""CUTLASS 3.x as a peer, compiled here from the headers of the wheel nvidia-cutlass (no CUDA package of its own is needed)."""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from device.settings import read_settings
from device.toolchain import find_toolchain
from harness.build.store import hash_file, hash_text

_SOURCE = Path(__file__).with_name("peer_cutlass.cu")
_ACTIVATIONS = {"silu": "SiLu", "gelu_erf": "GELU"}
_SCHEDULES = {"cooperative 128x256": 0, "ping-pong 128x128": 1}
_WORKSPACE_BYTES = 4 << 20
# Without NDEBUG its assertions keep ptxas from overlapping wgmma.
_FLAGS = (
    "-std=c++17",
    "-O3",
    "-DNDEBUG",
    "--expt-relaxed-constexpr",
    "-gencode=arch=compute_90a,code=sm_90a",
    "-shared",
    "-Xcompiler",
    "-fPIC",
)


def _find_headers() -> Path:
    spec = importlib.util.find_spec("cutlass_library")
    for root in (spec.submodule_search_locations or []) if spec is not None else []:
        if (Path(root) / "source" / "include" / "cutlass").is_dir():
            return Path(root) / "source"
    raise ImportError("its headers are not on this machine: pip install --no-deps nvidia-cutlass")


def _build(act: str, schedule: str, headers: Path) -> ctypes.CDLL:
    """Compile one kernel into the cache (about a minute), or find it there."""
    defines = (f"-DAICF_ACT={_ACTIVATIONS[act]}", f"-DAICF_PINGPONG={_SCHEDULES[schedule]}")
    version = hash_file(headers / "include" / "cutlass" / "version.h")
    key = hash_text(hash_file(_SOURCE), version, find_toolchain().identity, *_FLAGS, *defines)
    library = read_settings().cache_dir / "peers" / f"cutlass-{key}.so"
    if not library.is_file():
        library.parent.mkdir(parents=True, exist_ok=True)
        scratch = library.with_suffix(f".{act}.tmp")
        includes = (f"-I{headers / 'include'}", f"-I{headers / 'tools' / 'util' / 'include'}")
        nvcc = str(find_toolchain().nvcc)
        done = subprocess.run(
            [nvcc, *_FLAGS, *defines, *includes, str(_SOURCE), "-o", str(scratch)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise ImportError(f"CUTLASS does not compile here: {done.stderr[-500:]}")
        scratch.rename(library)
    return ctypes.CDLL(str(library))


class CutlassPeer:
    """A :class:`harness.spec.Launchable`: the faster of two schedules, chosen when a problem is first met (median of five hot launches)."""

    def __init__(self) -> None:
        import cupy

        headers = _find_headers()
        self._cupy = cupy
        self._num_sms = int(cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["multiProcessorCount"])
        self._workspace = cupy.cuda.alloc(_WORKSPACE_BYTES)
        wanted = [(act, schedule) for act in _ACTIVATIONS for schedule in _SCHEDULES]
        with ThreadPoolExecutor(len(wanted)) as pool:
            self._libraries = dict(zip(wanted, pool.map(lambda pair: _build(*pair, headers), wanted), strict=True))
        self._chosen: dict[tuple[object, ...], str] = {}

    def supports(self, **arguments: Any) -> str:
        """Return the reason why a problem is not timed, else ""."""
        a, b, y = (arguments[name] for name in ("a", "b", "y"))
        if a.dtype.name != "bfloat16" or arguments["b_layout"] != "nk":
            return "the CUTLASS peer is built for bfloat16 with b as [n, k]"
        if (
            arguments["act"] not in _ACTIVATIONS
            or arguments["bias"] is None
            or any(arguments[name] is not None for name in ("z", "residual", "p"))
        ):
            return f"the CUTLASS peer is built for {', '.join(_ACTIVATIONS)} with bias, without z, residual and dropout"
        if any(x.strides_bytes[0] != 2 * x.shape[1] or x.shape[1] % 8 for x in (a, b, y)):
            return "the CUTLASS peer takes packed rows of whole 16 bytes"
        try:
            self._choose(arguments)
        except RuntimeError as error:
            return str(error)
        return ""

    def workspace_bytes(self, **arguments: Any) -> int:
        """Return 0: the workspace is the peer's own."""
        return 0

    def launch(self, *, workspace: int, stream: int, **arguments: Any) -> None:
        """Queue the product on a stream."""
        self._run(self._choose(arguments), arguments, stream)

    def _run(self, schedule: str, arguments: Any, stream: int) -> None:
        a, b, bias, y = (arguments[name] for name in ("a", "b", "bias", "y"))
        pointers = (ctypes.c_void_p(x.address) for x in (a, b, bias, y))
        sizes = (ctypes.c_int(v) for v in (a.shape[0], b.shape[0], a.shape[1], self._num_sms))
        library = self._libraries[arguments["act"], schedule]
        status = library.aicf_cutlass_run(*pointers, *sizes, ctypes.c_void_p(int(self._workspace.ptr)), ctypes.c_void_p(stream))
        if status != 0:
            raise RuntimeError(f"CUTLASS refuses: cutlass::Status {status}")

    def _choose(self, arguments: Any) -> str:
        key = (arguments["act"], *arguments["y"].shape, arguments["a"].shape[1])
        if key not in self._chosen:
            stream = self._cupy.cuda.Stream(non_blocking=True)
            times = {schedule: self._measure(schedule, arguments, stream) for schedule in _SCHEDULES}
            self._chosen[key] = min(times, key=lambda s: times[s])
        return self._chosen[key]

    def _measure(self, schedule: str, arguments: Any, stream: Any) -> float:
        events = [self._cupy.cuda.Event() for _ in range(6)]
        for event in events:
            self._run(schedule, arguments, int(stream.ptr))
            event.record(stream)
        stream.synchronize()
        return float(np.median([self._cupy.cuda.get_elapsed_time(x, y) for x, y in itertools.pairwise(events)]))
