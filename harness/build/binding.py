"""An op's Python binding: built once per op by g++, loaded once per process, and the variants that it opens."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import cast

from device.toolchain import Toolchain
from harness.build.builder import open_store, write_generated
from harness.build.compiler import Compiler, compile_steadily, describe_failure
from harness.build.store import Entry, Store, full_disk_as_error, hash_file, hash_text
from harness.discover import LoadedOp
from harness.errors import BuildError
from harness.spec import Launchable, Op, Variant

# What all bindings share, below the ops, and what becomes of it.
_MODULE, _OBJECT = "common/op_module.cpp", "op_module.o"
# What compile_steadily() reads.
_DEPENDENCIES = ("-MMD", "-MF", "deps.d", "-MT", "binding")


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
    compile_it = [str(toolchain.cxx), *flags, *_DEPENDENCIES, "-c", str(source), "-o", "pybind.o"]
    link = [str(toolchain.cxx), "-shared", "-o", f"made/{name}", "pybind.o", *map(str, shared), "-ldl"]

    def build(scratch: Path) -> Entry:
        files = _compile(runner, (compile_it, link), scratch, roots, f"the binding {source}", cache)
        return cache.add("bindings", request, scratch / "made", files, {"op": loaded.op.name})

    return _find_or_build(cache, request, build) / name


def _build_module(include_dir: Path, toolchain: Toolchain, cache: Store, compiler: Compiler) -> Path:
    """Compile what all bindings share, once for all that have the same text of it, wherever they lie; return the object file."""
    source, common = include_dir / _MODULE, include_dir / "common"
    flags = _list_flags(toolchain, ())

    def make_request() -> str:
        texts = [source, *sorted(common.glob("*.h")), *sorted(common.glob("*.hpp"))]
        contents = [f"{path.name}={hash_file(path)}" for path in texts]
        return hash_text("op module 1", *contents, *flags, _describe_abi(), toolchain.cxx_version)

    request = make_request()
    command = [str(toolchain.cxx), *flags, f"-I{include_dir}", *_DEPENDENCIES, "-c", str(source), "-o", f"made/{_OBJECT}"]

    def build(scratch: Path) -> Entry:
        _compile(compiler, (command,), scratch, (include_dir,), str(source), cache)
        if make_request() != request:
            raise BuildError(f"{source} changed while it was compiled; build again when it is still")
        return cache.add("bindings", request, scratch / "made", {}, {})

    return _find_or_build(cache, request, build) / _OBJECT


def _find_or_build(cache: Store, request: str, build: Callable[[Path], Entry]) -> Path:
    """Return the folder of the entry that serves a request, built in a scratch folder where there is none."""
    if entry := cache.find("bindings", request):
        return entry.folder
    with cache.lock(request), cache.scratch() as scratch:
        return (cache.find("bindings", request) or build(scratch)).folder


def _compile(
    compiler: Compiler, commands: Sequence[Sequence[str]], scratch: Path, roots: Sequence[Path], what: str, cache: Store
) -> dict[str, str]:
    """Run commands that leave their result in ``made``; return the hashes of the files that were read."""
    with full_disk_as_error(cache.root):
        (scratch / "made").mkdir()
    status, log, files = compile_steadily(compiler, commands, scratch, roots)
    if status != 0:
        raise BuildError(f"{what} does not compile:\n{describe_failure(log, cache.root)}")
    return files


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
