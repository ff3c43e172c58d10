"""Building an op: one shared object per variant with nvcc, one Python binding per op with g++.

Device code is compiled with machine code and PTX side by side and linked to the *shared* CUDA runtime, so that the same file runs on a
GPU and on the emulated device. Results come from the cache (:mod:`harness.build.store`) wherever their sources, flags and compilers are
unchanged; a compile error is data of its variant and never stops the others.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

from contract.files import write_atomically
from contract.kernels import EMULATED_HOST_EFFORT, HOST_EFFORT, WITHOUT_LARGE_HEADERS
from device.cubin import hash_host_code, hash_machine_code
from device.settings import read_settings
from device.toolchain import Toolchain
from harness.build.compiler import Compiler, compile_steadily, describe_failure
from harness.build.generate import define_variant, generate_sources, includes_generated
from harness.build.resources import Resources, parse_ptxas, parse_ptxas_by_kernel
from harness.build.store import Entry, Store, full_disk_as_error, hash_text
from harness.discover import LoadedOp
from harness.spec import Variant
from harness.targets import Target
from harness.terminal.console import print_warning

_LIBRARY = "variant.so"
_PTXAS_LOG = "ptxas.txt"


@dataclass(frozen=True)
class BuildResult:
    """What became of one variant: its library, or the compiler's error text.

    ``key`` addresses sources, flags and compilers; ``code_hash`` only the machine code, so it survives a change of comments;
    ``source_hash`` only the sources, wherever the project lies; ``host_hash`` the launcher's code ("" for what an older version built).
    ``sources`` are the project's files that the compiler read, by path below the ops folder, each with its content's hash.
    """

    variant: Variant
    library: Path | None
    code_hash: str
    key: str
    resources: Resources | None
    error: str | None
    seconds: float
    cached: bool
    source_hash: str = ""
    flags: str = ""
    host_hash: str = ""
    sources: tuple[tuple[str, str], ...] = ()

    @property
    def launch_hash(self) -> str:
        """What a launch does: kernels by ``code_hash``, and grids, blocks and shared memory by the host's code."""
        return hash_text(self.code_hash, self.host_hash) if self.code_hash else ""


def compile_flags(loaded: LoadedOp, variant: Variant, target: Target) -> list[str]:
    """Return nvcc's flags for a variant, without paths of this build."""
    defines = {"AICF_KERNEL": variant.kernel, "AICF_VARIANT": variant.symbol_suffix}
    if includes_generated(loaded.folder):
        defines |= define_variant(loaded.op, variant)
    else:
        defines |= {f"AICF_{name.upper()}": str(value) for name, value in variant.values}
    effort = HOST_EFFORT if target.has_machine_code else EMULATED_HOST_EFFORT
    return [
        *("-std=c++20", effort, "-lineinfo", "-DNDEBUG", "-Xptxas", "-v", "-Xcompiler", "-fPIC,-fvisibility=hidden"),
        *("-cudart", "shared", "--compress-mode=none", "-gencode", target.gencode),
        f"-I{loaded.include_dir}",
        *(f"-D{name}={value}" for name, value in defines.items()),
        *loaded.op.flags,
    ]


def build_op(
    loaded: LoadedOp,
    variants: Sequence[Variant],
    *,
    toolchain: Toolchain,
    target: Target,
    jobs: int | None = None,
    on_result: Callable[[BuildResult], None] | None = None,
    store: Store | None = None,
    compiler: Compiler | None = None,
) -> list[BuildResult]:
    """Build variants on ``jobs`` cores; returns results in the variants' order and calls ``on_result`` as each one ends.

    Raises :class:`BuildError` only for what stops all of them (a full disk, a cache that cannot be written).
    """
    cache = store or open_store()
    runner = compiler or Compiler()
    results: dict[Variant, BuildResult] = {}
    with ThreadPoolExecutor(jobs or read_settings().jobs) as pool:
        futures = [pool.submit(_build_variant, loaded, v, toolchain, target, cache, runner) for v in variants]
        try:
            for future in as_completed(futures):
                result = future.result()
                results[result.variant] = result
                if on_result is not None:
                    on_result(result)
        except BaseException:
            runner.stop()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    _write_compile_commands(loaded, variants, toolchain, target, cache)
    return [results[v] for v in variants]


def build_stream(
    loaded: LoadedOp,
    variants: Iterable[Variant],
    *,
    toolchain: Toolchain,
    target: Target,
    jobs: int,
    on_result: Callable[[BuildResult], None],
    compiler: Compiler,
    store: Store | None = None,
) -> None:
    """Build variants as they come on ``jobs`` cores; ``on_result`` is called in the threads that build.

    The next variant is asked for while others compile, so that it may depend on what is told of those. Raises as :func:`build_op`, and
    what ``on_result`` raises.
    """
    cache = store or open_store()
    futures: list[Future[None]] = []

    def build(variant: Variant) -> None:
        on_result(_build_variant(loaded, variant, toolchain, target, cache, compiler))

    with ThreadPoolExecutor(jobs) as pool:
        try:
            for variant in variants:
                futures.append(pool.submit(build, variant))
                if broken := [f for f in futures if f.done() and f.exception() is not None]:
                    broken[0].result()
                futures = [f for f in futures if not f.done()]
            for future in as_completed(futures):
                future.result()
        except BaseException:
            compiler.stop()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def open_store() -> Store:
    """Return the cache that the settings name; what it finds corrupt is said on stderr."""
    return Store(read_settings().cache_dir, on_warning=print_warning)


def _build_variant(
    loaded: LoadedOp, variant: Variant, toolchain: Toolchain, target: Target, store: Store, compiler: Compiler
) -> BuildResult:
    started = time.monotonic()
    source = loaded.folder / "launcher.cu"
    roots = (loaded.include_dir, *write_generated(loaded, store))
    flags = [*compile_flags(loaded, variant, target), *(f"-I{root}" for root in roots[1:])]
    request = hash_text("variant 1", str(source), *flags, toolchain.identity)

    def finish(entry: Entry, cached: bool) -> BuildResult:
        resources = parse_ptxas((entry.folder / _PTXAS_LOG).read_text())
        seconds = time.monotonic() - started
        code_hash, library = str(entry.facts["code_hash"]), entry.folder / _LIBRARY
        sources = _name_sources(entry.files, roots)
        source_hash = hash_text(*(f"{name}={digest}" for name, digest in sources))
        plain_flags = " ".join(f for f in flags if not f.startswith("-I"))
        host_hash = str(entry.facts.get("host_hash", ""))
        return BuildResult(
            variant, library, code_hash, entry.key, resources, None, seconds, cached, source_hash, plain_flags, host_hash, sources
        )

    if entry := store.find("variants", request):
        return finish(entry, cached=True)
    with store.lock(request), store.scratch() as scratch:
        if entry := store.find("variants", request):
            return finish(entry, cached=True)
        made = scratch / "made"
        with full_disk_as_error(store.root):
            made.mkdir()
        command = [str(toolchain.nvcc), "-ccbin", str(toolchain.cxx), *flags, "-MMD", "-MF", "deps.d", "-c", str(source), "-o", "object.o"]
        link = [str(toolchain.cxx), "-shared", "-o", str(made / _LIBRARY), "object.o", str(toolchain.cudart_library)]
        for first in ([*command, *WITHOUT_LARGE_HEADERS], command):
            status, log, files = compile_steadily(compiler, (first, link), scratch, roots)
            if status == 0 or compiler.is_stopped:
                break
        if status != 0:
            error = describe_failure(log, store.root)
            return BuildResult(variant, None, "", "", None, error, time.monotonic() - started, cached=False)
        with full_disk_as_error(store.root):
            (made / _PTXAS_LOG).write_text(log)
        hashes = {"code_hash": hash_machine_code(made / _LIBRARY), "host_hash": hash_host_code(scratch / "object.o")}
        entry = store.add("variants", request, made, files, hashes | {"variant": variant.name})
    return finish(entry, cached=False)


def write_generated(loaded: LoadedOp, store: Store) -> tuple[Path, ...]:
    """Write the headers that are generated from ``op.py`` below the cache; return the include folder that holds them, none without any."""
    texts = generate_sources(loaded)
    if not texts:
        return ()
    folder = store.root / "generated" / hash_text(*(part for pair in sorted(texts.items()) for part in pair))[:32]
    for name, text in texts.items():
        path = folder / name
        if path.is_file() and path.read_text() == text:
            continue
        with full_disk_as_error(store.root):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, text)
    return (folder,)


def _name_sources(files: Mapping[str, str], roots: Sequence[Path]) -> tuple[tuple[str, str], ...]:
    """Return hashes of sources in the order of their paths, by their names below the first of ``roots`` that holds them."""

    def name(path: str) -> str:
        return os.path.relpath(path, next((r for r in roots if Path(path).is_relative_to(r)), roots[0]))

    return tuple((name(path), digest) for path, digest in sorted(files.items()))


def _write_compile_commands(loaded: LoadedOp, variants: Sequence[Variant], toolchain: Toolchain, target: Target, store: Store) -> None:
    source = str(loaded.folder / "launcher.cu")
    includes = [f"-I{root}" for root in write_generated(loaded, store)]
    rows = [
        {
            "directory": str(loaded.folder),
            "file": source,
            "arguments": [str(toolchain.nvcc), *compile_flags(loaded, v, target), *includes, "-c", source],
        }
        for v in variants[:1]
    ]
    folder = store.root / "compile_commands" / loaded.op.name
    text = json.dumps(rows, indent=1)
    path = folder / "compile_commands.json"
    if path.is_file() and path.read_text() == text:
        return
    with full_disk_as_error(store.root):
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)


def describe_build(variant: Variant, library: Path) -> BuildResult:
    """Return what is known of a built variant from its library and what lies beside it."""
    return BuildResult(variant, library, "", "", parse_ptxas((library.parent / _PTXAS_LOG).read_text()), None, 0.0, cached=True)


def read_resources(result: BuildResult) -> dict[str, Resources]:
    """Return what ptxas reported of each kernel of a built variant, by the kernel's symbol."""
    return parse_ptxas_by_kernel((result.library.parent / _PTXAS_LOG).read_text()) if result.library is not None else {}


def describe_result(result: BuildResult) -> Mapping[str, object]:
    """Return a result as plain data for ``--json``."""
    row = asdict(result)
    row["variant"] = result.variant.name
    row["library"] = None if result.library is None else str(result.library)
    return row
