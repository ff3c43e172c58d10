"""The next structure compiled, if possible of kernels that are in the cache."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from aicf.backends import find_backend
from aicf.errors import RewriteError
from aicf.opset import find_dtype
from aicf.plan import Plan
from aicf.rewrite.checking import check
from aicf.rewrite.draft import Draft
from aicf.rewrite.rules import Rule
from aicf.rewrite.structure import Prepared, Structure, make_close
from contract.building import NotBuiltError, list_compiled, without_compiler

_log = logging.getLogger("aicf.rewrite")


def prepare(rule: Rule, structure: Structure, draft: Draft, *, compiles: bool) -> Prepared:
    """Return what a draft of a structure is compiled to, of kernels that are in the cache where that can be done.

    Raises :class:`RewriteError` where it cannot be compiled, or, unless it ``compiles``, where a kernel is not in the cache.
    """
    try:
        with without_compiler():
            return structure.prepare(draft)
    except NotBuiltError as error:
        if not compiles:
            raise RewriteError(f"{rule}: needs kernels that Run.prebuild compiles ahead: {error}") from error
        _log.warning("%s: kernels are compiled now; Run.prebuild does it ahead: %s", rule, error)
        return structure.prepare(draft)


@contextmanager
def without_collections() -> Iterator[None]:
    """Have no automatic garbage collection: one over all objects of a process may take as long as a third of a rewrite."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def build_copies(plan: Plan) -> None:
    """Build what makes a plan's copies of parameters, which a step does where these were written by others, as a rewrite does."""
    backend = find_backend(plan.backend)
    for source, copy in plan.copies:
        values = backend.from_host(np.zeros(source.slot.type.shape, find_dtype(source.slot.type.dtype)))
        backend.op_call("Cast", (values,), {"dtype": copy.slot.type.dtype})


def prebuild(structure: Structure, rules: Sequence[Rule]) -> tuple[str, ...]:
    """Compile what a rewrite by each of the rules needs, and nothing else; returns the kernels that were not in the cache."""
    compiled = len(list_compiled())
    for rule in rules:
        draft = structure.start()
        rule.change(draft)
        draft.finish()
        check(rule, structure, draft)
        prepared = structure.prepare(draft)
        plans = [prepared.made.plan]
        if prepared.watch is not None:
            plans.append(make_close(prepared.recipe, prepared.watch, prepared.made.plan.given_types)[1].plan)
        for plan in plans:
            build_copies(plan)
    return list_compiled()[compiled:]
