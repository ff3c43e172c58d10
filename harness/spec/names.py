"""Names that users give: an op's kernels, variants and problems by name or by pattern."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Sequence
from fnmatch import fnmatchcase

from device.settings import suggest
from harness.errors import SpecError
from harness.spec.kernels import Kernel, Variant
from harness.spec.problem import Problem


def is_pattern(name: str) -> bool:
    """Return whether a name from the command line is a pattern, in which ``*`` and ``?`` stand for what they do in a shell."""
    return any(mark in name for mark in "*?[")


def find_kernel(op: str, kernels: Sequence[Kernel], name: str) -> Kernel:
    """Return the kernel of that name, or raise :class:`SpecError` with the names there are."""
    for kernel in kernels:
        if kernel.name == name:
            return kernel
    names = [k.name for k in kernels]
    raise SpecError(f"op {op} has no kernel {name!r}{suggest(name, names)}; it has: {', '.join(names)}")


def match_variants(op: str, kernels: Sequence[Kernel], names: Sequence[str]) -> tuple[Variant, ...]:
    """Return the variants that are named: all that a kernel lists, one by its full id, or those listed that match a pattern."""
    listed = [kernel.bind(bound) for kernel in kernels for bound in kernel.variants]
    chosen: dict[str, Variant] = {}
    for name in names:
        if is_pattern(name):
            matching = [v for v in listed if fnmatchcase(v.name, name)]
            if not matching:
                raise SpecError(f"op {op} has no listed variant that matches {name!r}; `list {op}` shows them")
            chosen.update((v.name, v) for v in matching)
            continue
        kernel_name, _, bound = name.partition("/")
        kernel = find_kernel(op, kernels, kernel_name)
        found = [kernel.parse_variant(bound)] if bound else [kernel.bind(b) for b in kernel.variants]
        chosen.update((v.name, v) for v in found)
    return tuple(chosen.values())


def match_problems(op: str, problems: Sequence[Problem], listed: Sequence[Problem], names: Sequence[str]) -> tuple[Problem, ...]:
    """Return the problems that are named; a pattern chooses among ``listed``, or among all where it matches none of these."""
    chosen: dict[str, Problem] = {}
    for name in names:
        matches = functools.partial(fnmatchcase, pat=name) if is_pattern(name) else name.__eq__
        found = [p for p in problems if matches(p.name)]
        if not found:
            raise SpecError(_describe_missing(op, [p.name for p in problems], name))
        chosen.update((p.name, p) for p in ([p for p in found if p in listed] or found))
    return tuple(chosen.values())


def _describe_missing(op: str, known: Sequence[str], name: str) -> str:
    """Say that no problem is named so, after the list of those that there are: it may be long, and its end is what is read."""
    close = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    listed = "\n  ".join(known)
    what = "problem that matches" if is_pattern(name) else "problem"
    return f"the problems of op {op} are\n  {listed}\nop {op} has no {what} {name!r}{hint}"
