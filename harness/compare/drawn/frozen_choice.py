"""What users get: the kernel of the frozen set that the framework chooses for a problem, built from its sealed sources.

The decision is asked of the framework itself, in a process of its own (``python -m aicf choose``): the workbench imports nothing of the
framework, and a second writing of the decision would judge something else than what users get.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from contract.building import PTXAS_LOG, build_kernel
from contract.index import Index
from contract.kernels import read_kernel
from contract.layout import INDEX, find_frozen_dir, hash_bytes, hash_value
from device.settings import find_project_root
from device.toolchain import Toolchain
from harness.build.builder import BuildResult, build_binding
from harness.build.resources import parse_ptxas
from harness.build.store import Store
from harness.discover import LoadedOp, load_op
from harness.errors import FrozenError
from harness.freezing.interface import describe_interface, read_api
from harness.freezing.reading import read_frozen_op
from harness.freezing.sealing import SealedVariant
from harness.spec import Op, Problem


@dataclass(frozen=True)
class FrozenChoice:
    """The framework's decision for one problem: ``error`` says why there is none, and then the rest is empty.

    ``legal`` are the names of all frozen kernels that serve the problem; ``how`` is the step of the decision that found ``kernel``.
    """

    kernel: str = ""
    variant: str = ""
    how: str = ""
    reason: str = ""
    predicted_us: float | None = None
    legal: tuple[str, ...] = ()
    error: str = ""


def choose_frozen(op: Op, problems: Sequence[Problem], arch: str, frozen_dir: Path | None = None) -> list[FrozenChoice]:
    """Return the decision for each problem; an op that is not frozen has an error in each. Raises :class:`FrozenError`."""
    if not (frozen_dir or find_frozen_dir()).joinpath(op.name, INDEX).is_file():
        return [FrozenChoice(error=f"{op.name} is not frozen")] * len(problems)
    lines = "".join(json.dumps(_describe_call(op, p)) + "\n" for p in problems)
    command = [sys.executable, "-m", "aicf", "choose", op.name, "--arch", arch]
    done = subprocess.run(command, input=lines, cwd=find_project_root(), capture_output=True, encoding="utf-8", check=False)
    rows = done.stdout.splitlines()
    if done.returncode != 0 or len(rows) != len(problems):
        said = done.stderr.strip() or f"{len(rows)} answers to {len(problems)} calls"
        raise FrozenError(f"`{' '.join(command[1:])}` did not decide: {said}")
    return [_read_choice(json.loads(row)) for row in rows]


def _describe_call(op: Op, problem: Problem) -> dict[str, Any]:
    facts = op.find_facts(problem)
    return {"sizes": dict(facts.sizes), "attributes": dict(facts.attributes), "strides": dict(facts.strides)}


def _read_choice(row: Mapping[str, Any]) -> FrozenChoice:
    given = dict(row)
    return FrozenChoice(legal=tuple(given.pop("legal", ())), **given)


def hash_index(op: str, frozen_dir: Path | None = None) -> str:
    """Return the SHA-256 of an op's index, by which records know what set they judged; "" where it is not frozen."""
    path = (frozen_dir or find_frozen_dir()) / op / INDEX
    return hash_bytes(path.read_bytes()) if path.is_file() else ""


class SealedKernels:
    """Builds frozen kernels of one op from their sealed sources, and keeps them in the cache."""

    def __init__(self, loaded: LoadedOp, toolchain: Toolchain, store: Store, frozen_dir: Path | None = None) -> None:
        self._loaded = loaded
        self._toolchain = toolchain
        self._store = store
        self._frozen: Index = read_frozen_op(frozen_dir or find_frozen_dir(), loaded.op.name)
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
        sealed = read_kernel(self._frozen.folder, kernel)
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
        result = BuildResult(variant, library, sealed.machine_code, str(manifest["seal"]), resources, None, 0.0, cached=True, flags=flags)
        return result, build_binding(loaded, self._toolchain, store=self._store), loaded.op
