"""Writing a loose kernel as the folder of an op that the workbench can use."""

from __future__ import annotations

import ast
import inspect
import math
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from device.settings import find_project_root, read_settings
from harness.build.store import full_disk_as_error, hash_text
from harness.discover import LoadedOp, load_op
from harness.errors import SpecError
from harness.loose.arguments import Array
from harness.loose.formulas import RenameNames, read_formula
from harness.loose.functions import Written
from harness.loose.kernel import LooseKernel
from harness.loose.problems import choose_proving_sizes, shrink
from harness.scaffold import check_op_name, fill_folder, render_test
from harness.spec import PLAIN
from harness.spec.dtypes import find_dtype
from harness.spec.formulas import Formula

_COMMON = "common"


def name_op(kernel: str) -> str:
    """Return the name of the op of a loose kernel, which no folder of ``ops/`` has."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kernel).lower()
    return "loose_" + re.sub("_+", "_", words).strip("_")


def load_loose(kernel: LooseKernel) -> LoadedOp:
    """Write a kernel as an op below the cache, by the hash of all of it, and load it; raises SpecError for what an op cannot be."""
    name = name_op(kernel.name)
    files = write_files(kernel, name, kernel.list_bindings()[:1])
    parent = read_settings().cache_dir / "loose" / hash_text(*(part for pair in sorted(files.items()) for part in pair))[:24]
    folder = parent / name
    if not folder.is_dir():
        with full_disk_as_error(parent.parent):
            parent.mkdir(parents=True, exist_ok=True)
            _link_common(parent)
            _write_whole(folder, files)
    return LoadedOp(load_op(folder), folder)


def save_op(kernel: LooseKernel, name: str, bindings: Sequence[Mapping[str, int]], ops_dir: Path | None = None) -> Path:
    """Write a kernel as ``ops/<name>/`` with these bindings as its listed variants, whole or not at all; return the folder.

    Raises SpecError for a name that cannot be an op's, or a folder that there is.
    """
    check_op_name(name)
    parent = find_project_root() / "ops" if ops_dir is None else Path(ops_dir)
    folder = parent / name
    if folder.exists():
        raise SpecError(f"{folder} exists already; choose another name, or remove it first")
    with full_disk_as_error(parent):
        parent.mkdir(parents=True, exist_ok=True)
        _link_common(parent)
        _write_whole(folder, write_files(kernel, name, bindings) | render_test(name))
    return folder


def _link_common(parent: Path) -> None:
    """Make what all ops include from ``common/`` be found there."""
    beside = [find_project_root() / "ops" / _COMMON, Path(__file__).resolve().parents[2] / "ops" / _COMMON]
    place = next((p for p in beside if p.is_dir()), None)
    if place is None:
        raise SpecError(f"the headers that ops share are missing: there is no folder {beside[0]}")
    link = parent / _COMMON
    if not link.exists():
        link.unlink(missing_ok=True)
        link.symlink_to(place)


def _write_whole(folder: Path, files: Mapping[str, str]) -> None:
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        for place, text in files.items():
            path = scratch / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        scratch.chmod(0o755)
        try:
            scratch.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise  # another process wrote the same meanwhile, otherwise
            shutil.rmtree(scratch)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def write_files(kernel: LooseKernel, name: str, bindings: Sequence[Mapping[str, int]]) -> dict[str, str]:
    """Return the text of each file of the op by its place in the folder."""
    written = Written()
    written.add_function("reference", kernel.reference, "kernel_reference")
    if kernel.tolerance is not None:
        written.add_function("tolerance", kernel.tolerance, "kernel_tolerance")
    shapes, derived = _name_shapes(kernel)
    arrays = kernel.arguments.arrays
    terms = kernel.terms or _guess_terms(kernel, shapes)
    first = shapes[kernel.arguments.outputs[0]]
    flops = kernel.flops or " * ".join(["2", f"({terms})", *(f"({_expand(d, derived)})" for d in first)])
    values: dict[str, Any] = {
        "op": name,
        "camel": "".join(part.capitalize() for part in name.split("_")),
        "about": f"the CUDA kernel {kernel.name}",
        "kernel": name.removeprefix("loose_"),
        "c_name": kernel.name,
        "written": written,
        "has_tolerance": kernel.tolerance is not None,
        "terms": terms,
        "flops": flops,
        "derived": derived,
        "value_names": sorted({type(a.values).__name__ for a in arrays.values() if a.values != PLAIN}),
        "tensors": [_write_tensor(n, a, shapes[n]) for n, a in arrays.items()],
        "scalars": [
            f'Scalar("{s.name}", {s.default!r}, {s.low!r}, {s.high!r}, dtype="{s.dtype}")' for s in kernel.arguments.scalars.values()
        ],
        "reference_arguments": _write_arguments(kernel),
        "tunables": [f'Tunable("{own}", {kernel.tunables[n]!r}, {n!r})' for n, own in kernel.own_names.items()],
        "constraints": [(f"rule_{i}", said, expression) for i, (said, expression) in enumerate(kernel.restrictions)],
        "variants": [{own: b[n] for n, own in kernel.own_names.items()} for b in bindings],
        "domain": _write_domain(kernel),
        "problems": _list_problems(kernel, flops, shapes, derived),
        "flags": repr(kernel.flags),
        **_describe_launch(kernel),
    }
    return fill_folder("loose", values) | dict(kernel.files)


def _name_shapes(kernel: LooseKernel) -> tuple[dict[str, tuple[str | int, ...]], dict[str, str]]:
    """Return each array's dimensions by sizes' names and numbers, and the formulas of the sizes that follow from others."""
    sizes = kernel.sizes[0]
    derived: dict[str, str] = {}
    shapes: dict[str, tuple[str | int, ...]] = {}
    for name, array in kernel.arguments.arrays.items():
        shape: list[str | int] = []
        for dim in array.shape:
            if isinstance(dim, int) or dim in sizes:
                shape.append(dim)
                continue
            text = read_formula(f"arguments: the shape of {name}", dim, sizes)
            known = next((n for n, formula in derived.items() if formula == text), None)
            own = known or f"{name}_dim{len(shape)}"
            derived[own] = text
            shape.append(own)
        shapes[name] = tuple(shape)
    return shapes, derived


def _expand(dim: str | int, derived: Mapping[str, str]) -> str:
    return derived.get(str(dim), str(dim))


def _guess_terms(kernel: LooseKernel, shapes: Mapping[str, tuple[str | int, ...]]) -> str:
    """Return how many products an output sums up at most: what of the inputs the outputs do not have."""
    kept = {d for name in kernel.arguments.outputs for d in shapes[name]}
    used = {d for shape in shapes.values() for d in shape}
    sums = [s for s in kernel.sizes[0] if s in used and not any(s == d or s in _list_names(d, kernel) for d in kept)]
    numbers = [math.prod(d for d in shape if isinstance(d, int) and d not in kept) for shape in shapes.values()]
    return " * ".join([*sums, *([str(max(numbers))] if max(numbers) > 1 else [])]) or "1"


def _list_names(dim: str | int, kernel: LooseKernel) -> set[str]:
    """Return the sizes that a derived dimension is made of."""
    return {n.id for n in ast.walk(ast.parse(str(dim))) if isinstance(n, ast.Name)} & set(kernel.sizes[0])


def _write_tensor(name: str, array: Array, shape: tuple[str | int, ...]) -> str:
    values = "" if array.values == PLAIN else f", values={array.values!r}"
    return f'Tensor("{name}", {shape!r}, Role.{array.role.name}, "{array.dtype}"{values})'


def _write_arguments(kernel: LooseKernel) -> str:
    """Return what the reference is called with: arrays that are read, sizes and scalars, by the names of its parameters."""
    inputs = [n for n, a in kernel.arguments.arrays.items() if a.role.name != "OUTPUT"]
    known = [*inputs, *kernel.arguments.scalars, *kernel.sizes[0]]
    parameters = inspect.signature(kernel.reference).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return ", ".join(f'{n}=values["{n}"]' for n in known)
    if unknown := [p for p in parameters if p not in known and parameters[p].default is inspect.Parameter.empty]:
        there = ", ".join(known) or "none"
        raise SpecError(f"reference has parameter {unknown[0]}, which is not an input, scalar or size of the kernel (there are: {there})")
    return ", ".join(f'{n}=values["{n}"]' for n in parameters if n in known)


def _write_domain(kernel: LooseKernel) -> list[str]:
    lines = [f'Count({{"{size}": 1}}, max={limit})' for size, limit in kernel.arguments.limits.items()]
    for size, text in kernel.multiple_of.items():
        lines.append(f'Count({{"{size}": 1}}, multiple={_write_step(kernel, ast.parse(text, mode="eval").body)})')
    for text in kernel.grid[1:]:
        if (share := _find_share(kernel, text)) is not None:
            size, step = share
            lines.append(f'Count({{"{size}": {_write_step(kernel, step)}}}, max={_MOST_BLOCKS})')
    return lines


def _write_step(kernel: LooseKernel, step: ast.expr) -> str:
    """Return a formula of tunables by the names that the op has for them."""
    return ast.unparse(RenameNames(kernel.own_names).visit(step))


def _find_share(kernel: LooseKernel, text: str) -> tuple[str, ast.expr] | None:
    """Return the size that a dimension of the grid shares out, and by what; None where it is another formula."""
    whole: ast.expr = ast.parse(text, mode="eval").body
    node: ast.expr = whole
    step: ast.expr = ast.Constant(1)
    if isinstance(whole, ast.BinOp) and isinstance(whole.op, ast.FloorDiv):
        node, step = whole.left, whole.right
    elif isinstance(whole, ast.Call) and isinstance(whole.func, ast.Name) and whole.func.id == "ceil_div":
        node, step = whole.args
    names = {n.id for n in ast.walk(step) if isinstance(n, ast.Name)}
    has_calls = any(isinstance(n, ast.Call) for n in ast.walk(step))
    if not isinstance(node, ast.Name) or node.id not in kernel.sizes[0] or has_calls or not names <= set(kernel.own_names):
        return None
    return node.id, step


def _list_problems(
    kernel: LooseKernel, flops: str, shapes: Mapping[str, tuple[str | int, ...]], derived: Mapping[str, str]
) -> list[tuple[dict[str, int], list[str]]]:
    """Return sizes with their suites: small ones for the proof, what the emulated device counts, and what is timed."""

    def find_work(sizes: Mapping[str, int]) -> float:
        elems = {n: math.prod(Formula(_expand(d, derived)).evaluate(sizes) for d in shape) for n, shape in shapes.items()}
        arrays = kernel.arguments.arrays
        return float(max(Formula(flops).evaluate(sizes), sum(e * find_dtype(arrays[n].dtype).itemsize for n, e in elems.items())))

    suites: dict[tuple[int, ...], tuple[dict[str, int], list[str]]] = {}

    def add(sizes: Mapping[str, int], suite: str) -> None:
        row = suites.setdefault(tuple(sizes.values()), (dict(sizes), []))[1]
        if suite not in row:
            row.append(suite)

    for sizes in kernel.proving_sizes or choose_proving_sizes(kernel.sizes, kernel.steps):
        add(sizes, "verify")
    for sizes in kernel.sizes:
        add(shrink(sizes, kernel.steps, find_work), "emulated")
    for sizes in kernel.sizes:
        add(sizes, "bench")
        add(sizes, "sweep")
    return list(suites.values())


def _describe_launch(kernel: LooseKernel) -> dict[str, Any]:
    """Return what the launcher's template is filled with."""
    own = kernel.own_names

    def rename(name: str) -> str:
        return f"std::int64_t{{AICF_{own[name].upper()}}}" if name in own else f"params.{name.lower()}"

    unknown = [t for t in kernel.template if re.fullmatch(r"[a-z_]\w*", t) and t not in own and t not in _TYPES]
    if unknown:
        raise SpecError(
            f"template: {unknown[0]!r} is neither a tunable (there are: {', '.join(own)}) nor a type; list the template's arguments"
        )
    parameters = [f"AICF_{own[t].upper()}" if t in own else t for t in kernel.template]
    return {
        "macros": {n: o for n, o in own.items() if n not in kernel.template},
        "grid": [Formula(f).to_c(rename) for f in kernel.grid],
        "block": [Formula(f).to_c(rename) for f in kernel.block],
        "shared": Formula(kernel.shared).to_c(rename) if kernel.shared else "",
        "template_arguments": f"<{', '.join(parameters)}>" if parameters else "",
        "calls": kernel.arguments.list_calls(),
    }


# Of a grid's second and third dimension (CUDA C++ Programming Guide, Technical Specifications per Compute Capability).
_MOST_BLOCKS = 65535
_TYPES = frozenset(("float", "double", "int", "unsigned", "bool", "char", "short", "long", "half", "true", "false"))
