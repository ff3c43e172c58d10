"""An op's Python binding: built once per op by g++, loaded once per process, and the variants that it opens."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import cast

from device.toolchain import Toolchain
from harness.build.builder import open_store, write_generated
from harness.build.compiler import Compiler, compile_steadily, describe_failure
from harness.build.store import Store, full_disk_as_error, hash_file, hash_text
from harness.discover import LoadedOp
from harness.errors import BuildError
from harness.spec import Launchable, Op, Variant

# What all bindings share, below the ops, and what becomes of it.
_MODULE, _OBJECT = "common/op_module.cpp", "op_module.o"


def build_binding(loaded: LoadedOp, toolchain: Toolchain, *, store: Store | None = None, compiler: Compiler | None = None) -> Path:
    """Build the op's Python binding and return the extension's path; raises :class:`BuildError` with the compiler's text."""
    cache, runner = store or open_store(), compiler or Compiler()
    source = loaded.folder / "pybind.cpp"
    name = f"_{loaded.op.name}.so"
    roots = (loaded.include_dir, *write_generated(loaded, cache))
    flags = _list_flags(toolchain, roots)
    # One that reads its arguments itself, or was sealed before the module was apart, has it in its own pybind.cpp.
    has_module = "common/op_module.hpp" in source.read_text()
    shared = (_build_module(loaded.include_dir, toolchain, cache, runner),) if has_module else ()
    request = hash_text("binding 2", str(source), *flags, *map(str, shared), _describe_abi(), toolchain.cxx_version)
    if entry := cache.find("bindings", request):
        return entry.folder / name
    with cache.lock(request), cache.scratch() as scratch:
        if entry := cache.find("bindings", request):
            return entry.folder / name
        made = scratch / "made"
        with full_disk_as_error(cache.root):
            made.mkdir()
        commands = (
            [str(toolchain.cxx), *flags, "-MMD", "-MF", "deps.d", "-MT", "binding", "-c", str(source), "-o", "pybind.o"],
            [str(toolchain.cxx), "-shared", "-o", str(made / name), "pybind.o", *map(str, shared), "-ldl"],
        )
        status, log, files = compile_steadily(runner, commands, scratch, roots)
        if status != 0:
            raise BuildError(f"the binding {source} does not compile:\n{describe_failure(log, cache.root)}")
        entry = cache.add("bindings", request, made, files, {"op": loaded.op.name})
    return entry.folder / name


def _build_module(include_dir: Path, toolchain: Toolchain, cache: Store, compiler: Compiler) -> Path:
    """Compile what all bindings share, once for all that have the same text of it, wherever they lie; return the object file."""
    flags, roots = _list_flags(toolchain, ()), (include_dir,)

    def make_request() -> str:
        common = include_dir / "common"
        texts = [include_dir / _MODULE, *sorted(common.glob("*.h")), *sorted(common.glob("*.hpp"))]
        contents = [f"{path.name}={hash_file(path)}" for path in texts]
        return hash_text("op module 1", *contents, *flags, _describe_abi(), toolchain.cxx_version)

    request = make_request()
    if entry := cache.find("bindings", request):
        return entry.folder / _OBJECT
    with cache.lock(request), cache.scratch() as scratch:
        if entry := cache.find("bindings", request):
            return entry.folder / _OBJECT
        made = scratch / "made"
        with full_disk_as_error(cache.root):
            made.mkdir()
        command = [
            str(toolchain.cxx),
            *flags,
            f"-I{include_dir}",
            "-MMD",
            "-MF",
            "deps.d",
            "-MT",
            "module",
            "-c",
            str(include_dir / _MODULE),
        ]
        status, log, _ = compile_steadily(compiler, ([*command, "-o", str(made / _OBJECT)],), scratch, roots)
        if status != 0:
            raise BuildError(f"{include_dir / _MODULE} does not compile:\n{describe_failure(log, cache.root)}")
        if make_request() != request:
            raise BuildError(f"{include_dir / _MODULE} changed while it was compiled; build again when it is still")
        entry = cache.add("bindings", request, made, {}, {})
    return entry.folder / _OBJECT


def _list_flags(toolchain: Toolchain, roots: Sequence[Path]) -> list[str]:
    import pybind11

    includes = [*roots, pybind11.get_include(), sysconfig.get_path("include"), toolchain.cuda_include]
    # Of -O2 a third more of the compiler's seconds goes into code that only hands arguments over.
    return ["-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", *(f"-I{path}" for path in includes)]


def _describe_abi() -> str:
    return f"{sysconfig.get_config_var('EXT_SUFFIX')} pybind11 {version('pybind11')}"


def load_binding(path: Path) -> ModuleType:
    """Import a binding by its path; the same file is imported once a process. Raises :class:`BuildError` when it cannot be."""
    # A process may hold several bindings of one op, and pybind11 gives the module that it has under a name to whoever asks for this name.
    name = f"aicf_{hash_text(str(path))}.{path.stem}"
    if known := sys.modules.get(name):
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BuildError(f"{path} is not a Python extension")
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        raise BuildError(f"the binding {path} cannot be imported: {error}") from error
    sys.modules[name] = module
    return module


def open_variant(op: Op, binding: Path, library: Path, variant: Variant) -> Launchable:
    """Load a built variant through its op's binding. The device must be open: it decides which CUDA runtime the variant binds to."""
    module = load_binding(binding)
    if not hasattr(module, "Variant"):
        raise BuildError(f"the binding of op {op.name} ({binding.name}) has no class Variant")
    return cast("Launchable", module.Variant(str(library), variant.symbol_suffix))
