"""A loose kernel as its user describes it, checked; every mistake is a SpecError that names the argument and the remedy."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.errors import SpecError
from harness.loose.arguments import Argument, Arguments
from harness.loose.formulas import FormulaLike, read_formula, read_formulas, read_restriction
from harness.loose.problems import read_sizes
from harness.spec.formulas import Formula

Restriction = str | Callable[..., Any]
_BOUNDS = r"__launch_bounds__\s*\([^)]*\)\s*"
_KERNEL = re.compile(rf"__global__\s+(?:{_BOUNDS})?(?:static\s+|inline\s+)*void\s+(?:{_BOUNDS})?(\w+)\s*\(")
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class LooseKernel:
    """Everything that ``tune`` was given of a kernel. ``files`` are its text as ``kernels.cu``, and what that includes from beside it."""

    name: str
    files: Mapping[str, str]
    sizes: tuple[dict[str, int], ...]
    arguments: Arguments
    tunables: Mapping[str, tuple[int, ...]]
    grid: tuple[str, ...]
    block: tuple[str, ...]
    reference: Callable[..., Any]
    shared: str = ""
    template: tuple[str, ...] = ()
    restrictions: tuple[tuple[str, str], ...] = ()
    multiple_of: Mapping[str, str] = ()  # type: ignore[assignment]
    proving_sizes: tuple[dict[str, int], ...] = ()
    tolerance: Callable[..., Any] | None = None
    terms: str = ""
    flops: str = ""
    flags: tuple[str, ...] = ()

    @cached_property
    def own_names(self) -> dict[str, str]:
        """What the op calls each tunable: lower-case letters alone, since a variant's name is made of names and numbers."""
        return name_tunables(self.tunables)

    @cached_property
    def steps(self) -> dict[str, int]:
        """What all variants that are allowed ask each size to be a multiple of."""
        legal = self.list_bindings()
        return {s: math.lcm(*(Formula(f).evaluate(b) for b in legal)) for s, f in self.multiple_of.items()}

    def list_bindings(self) -> list[dict[str, int]]:
        """Return the tunables' values that the restrictions allow, in the order of the values."""
        rules = [compile(expression, "restriction", "eval") for _, expression in self.restrictions]
        found = []
        for row in itertools.product(*self.tunables.values()):
            values = dict(zip(self.tunables, row, strict=True))
            t = {self.own_names[name]: value for name, value in values.items()}
            if all(eval(rule, {"__builtins__": {}}, {"t": t}) for rule in rules):
                found.append(values)
        return found


def describe_kernel(
    source: str | Path,
    name: str,
    *,
    sizes: Any,
    arguments: Mapping[str, Argument],
    tunables: Mapping[str, Sequence[int]],
    grid: FormulaLike | Sequence[FormulaLike],
    block: FormulaLike | Sequence[FormulaLike],
    reference: Callable[..., Any],
    shared: FormulaLike | None = None,
    template: Sequence[str] = (),
    restrictions: Restriction | Sequence[Restriction] = (),
    multiple_of: Mapping[str, FormulaLike] | None = None,
    proving_sizes: Any = (),
    tolerance: Callable[..., Any] | None = None,
    terms: FormulaLike | None = None,
    flops: FormulaLike | None = None,
    flags: Sequence[str] = (),
) -> LooseKernel:
    """Check a description; :func:`harness.workbench.tuning.tune` says what each part is."""
    files = read_source(source, name)
    timed = read_sizes(sizes)
    known = Arguments(arguments, frozenset(timed[0]))
    values = read_tunables(tunables, timed[0])
    names = [*timed[0], *values]
    _check_reference(reference)
    rules = [restrictions] if isinstance(restrictions, str) or callable(restrictions) else list(restrictions)
    found = LooseKernel(
        name,
        files,
        timed,
        known,
        values,
        read_formulas("grid", grid, names),
        read_formulas("block", block, names),
        reference,
        shared="" if shared is None else read_formula("shared", shared, names),
        template=tuple(template),
        restrictions=tuple(read_restriction(r, name_tunables(values)) for r in rules),
        multiple_of=_read_steps(multiple_of or {}, timed[0], values),
        proving_sizes=read_sizes(proving_sizes) if proving_sizes else (),
        tolerance=tolerance,
        terms="" if terms is None else read_formula("terms", terms, timed[0]),
        flops="" if flops is None else read_formula("flops", flops, timed[0]),
        flags=(flags,) if isinstance(flags, str) else tuple(flags),
    )
    if not found.list_bindings():
        raise SpecError(f"restrictions: none of the {math.prod(map(len, values.values()))} bindings of the tunables is allowed; loosen one")
    return found


def _check_reference(reference: object) -> None:
    if not callable(reference):
        raise SpecError(f"reference is {reference!r}: give a function of the inputs by their names that returns what the kernel writes")


def _read_steps(given: Mapping[str, FormulaLike], sizes: Mapping[str, int], tunables: Mapping[str, Sequence[int]]) -> dict[str, str]:
    if unknown := [s for s in given if s not in sizes]:
        raise SpecError(f"multiple_of: {unknown[0]!r} is not a size (there are: {', '.join(sizes)})")
    return {size: _read_step(size, formula, tunables) for size, formula in given.items()}


def _read_step(size: str, given: FormulaLike, tunables: Mapping[str, Sequence[int]]) -> str:
    text = read_formula(f"multiple_of[{size!r}]", given, tunables)
    if "ceil_div" in text:
        raise SpecError(f"multiple_of[{size!r}] {text!r}: use + - * //, %, min and max of tunables")
    return text


def name_tunables(tunables: Mapping[str, Any]) -> dict[str, str]:
    """Return a name of lower-case letters for each tunable."""
    found: dict[str, str] = {}
    for name in tunables:
        own = re.sub("[^a-z]", "", name.lower()) or "t"
        while own in found.values():
            own += "x"
        found[name] = own
    return found


def read_tunables(tunables: Mapping[str, Sequence[int]], sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the values of each tunable; raises SpecError for what is none."""
    if not isinstance(tunables, Mapping):
        raise SpecError(f'tunables is {tunables!r}: give a dict of names to lists, e.g. {{"threads": [64, 128, 256]}}')
    found = {}
    for name, values in tunables.items():
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise SpecError(f"tunables: {name!r} is not a C++ name; use letters, digits and underscores")
        if name in sizes:
            raise SpecError(f"tunables: {name} is a size, too; rename one of them")
        listed = list(values) if isinstance(values, Sequence | range) and not isinstance(values, str) else None
        if not listed:
            raise SpecError(f"tunables: {name} is {values!r}; give a list of whole numbers, e.g. [64, 128, 256]")
        if odd := [v for v in listed if not isinstance(v, int) or v < 0]:
            raise SpecError(f"tunables: {name} has value {odd[0]!r}; a tunable is a whole number from 0 on: choose in the kernel with #if")
        if len(set(listed)) < len(listed):
            raise SpecError(f"tunables: {name} has a value twice: {listed}")
        found[name] = tuple(int(v) for v in listed)
    return found


def read_source(source: str | Path, name: str) -> dict[str, str]:
    """Return the kernel's text as ``kernels.cu``, and the files that it includes from beside it by their names.

    ``source`` is a path, or the text itself. Raises SpecError where there is no such file, or no such kernel in it.
    """
    if isinstance(source, str) and "\n" in source:
        text, folder, shown = source, None, "the text"
    else:
        path = Path(source).resolve()
        if not path.is_file():
            raise SpecError(f"source: there is no file {path}; give the kernel's path, or its text")
        text, folder, shown = path.read_text(), path.parent, path.name
    kernels = _KERNEL.findall(text)
    if not re.fullmatch(r"[A-Za-z_]\w*", name) or name not in kernels:
        raise SpecError(f"name: {shown} has no __global__ function {name!r} (it has: {', '.join(dict.fromkeys(kernels)) or 'none'})")
    files = {"kernels.cu": text}
    if folder is not None:
        _add_includes(files, text, folder, folder)
    return files


def _add_includes(files: dict[str, str], text: str, folder: Path, root: Path) -> None:
    for include in _INCLUDE.findall(text):
        path = (folder / include).resolve()
        if not path.is_file() or not path.is_relative_to(root):
            continue  # the compiler's own, or it says so
        place = str(path.relative_to(root))
        if place not in files:
            files[place] = path.read_text()
            _add_includes(files, files[place], path.parent, root)
