"""Frozen kernels as builds of the workbench: built from their sealed sources and opened by the matching binding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from contract.building import HOST_HASH, PTXAS_LOG, build_kernel
from contract.kernels import read_kernel
from contract.layout import find_frozen_dir, hash_value
from device.toolchain import Toolchain
from harness.build.binding import build_binding, open_variant
from harness.build.builder import BuildResult
from harness.build.interface import describe_interface, read_api
from harness.build.resources import parse_ptxas
from harness.build.store import Store
from harness.discover import LoadedOp, load_op
from harness.spec import Launchable, Op, Variant


@dataclass(frozen=True)
class SealedVariant(Variant):
    """A variant whose entry points carry the name of the frozen kernel, so that two versions of one variant link into one program."""

    suffix: str = ""

    @property
    def symbol_suffix(self) -> str:
        """The suffix of the entry points."""
        return self.suffix


class _EarlierKernel:
    """A kernel sealed with an earlier interface, launched with the arguments of the present one: those that it does not know are dropped.

    A call that it serves has them at their defaults.
    """

    def __init__(self, launchable: Launchable, op: Op) -> None:
        passed = [a.name for a in op.attributes if a.passed] + [s.name for s in op.scalars]
        self._launchable = launchable
        self._names = {*(t.name for t in op.tensors), *passed}

    def _keep(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in arguments.items() if name in self._names}

    def supports(self, **arguments: Any) -> str:
        """Return why it refuses, "" where it does not."""
        return self._launchable.supports(**self._keep(arguments))

    def workspace_bytes(self, **arguments: Any) -> int:
        """Return the bytes of device memory that it needs besides."""
        return self._launchable.workspace_bytes(**self._keep(arguments))

    def launch(self, *, workspace: int, stream: int, **arguments: Any) -> None:
        """Queue it on a stream."""
        self._launchable.launch(workspace=workspace, stream=stream, **self._keep(arguments))


def open_sealed(present: Op, op: Op, binding: Path, build: BuildResult) -> Launchable:
    """Open a kernel that was sealed as one of ``op``, to be launched as one of the ``present``."""
    assert build.library is not None
    opened = open_variant(op, binding, build.library, build.variant)
    return opened if op is present else _EarlierKernel(opened, op)


class SealedKernels:
    """Builds frozen kernels of one op from their sealed sources, and keeps them in the cache."""

    def __init__(self, loaded: LoadedOp, toolchain: Toolchain, store: Store, frozen_dir: Path | None = None) -> None:
        self._loaded = loaded
        self._toolchain = toolchain
        self._store = store
        self._folder = (frozen_dir or find_frozen_dir()) / loaded.op.name
        self._lock = Lock()  # loading an op's description changes sys.modules
        self._interface = hash_value(describe_interface(loaded.op, read_api(loaded)))

    def build(self, kernels: Sequence[str], jobs: int, on_built: Callable[[str], None]) -> dict[str, tuple[BuildResult, Path, Op]]:
        """Build kernels on ``jobs`` cores; return by name the build, the binding that opens it, and the op that it was sealed with.

        Raises :class:`BuildError` or :class:`FrozenError` where one does not come out as it was sealed.
        """

        def build(kernel: str) -> tuple[BuildResult, Path, Op]:
            made = self._build(kernel)
            on_built(kernel)
            return made

        with ThreadPoolExecutor(jobs) as pool:
            return dict(zip(kernels, pool.map(build, kernels), strict=True))

    def _build(self, kernel: str) -> tuple[BuildResult, Path, Op]:
        sealed = read_kernel(self._folder, kernel)
        sealed.check_sources()  # also where the library is in the cache: what is judged is what lies there
        manifest = sealed.manifest
        library = build_kernel(sealed, self._store.root)
        kernel_name, _, bound = str(manifest["variant"]).partition("/")
        loaded = self._loaded
        if manifest["interface"] != self._interface:  # an earlier interface has a binding of its own
            description = sealed.sources / loaded.op.name
            with self._lock:
                loaded = LoadedOp(load_op(description), description)
        values = tuple(self._loaded.op.find_kernel(kernel_name).parse_variant(bound).values)
        variant = SealedVariant(kernel_name, values, kernel)
        flags = " ".join(manifest["build"]["flags"])
        resources = parse_ptxas((library.parent / PTXAS_LOG).read_text())
        host = (library.parent / HOST_HASH).read_text()
        seal = str(manifest["seal"])
        result = BuildResult(variant, library, sealed.machine_code, seal, resources, None, 0.0, cached=True, flags=flags, host_hash=host)
        return result, build_binding(loaded, self._toolchain, store=self._store), loaded.op
