"""The next structure compiled, if possible of kernels that are in the cache."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from aicf.errors import RewriteError
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


def prebuild(structure: Structure, rules: Sequence[Rule]) -> tuple[str, ...]:
    """Compile what a rewrite by each of the rules needs, and nothing else; returns the kernels that were not in the cache."""
    compiled = len(list_compiled())
    for rule in rules:
        draft = structure.start()
        rule.change(draft)
        draft.finish()
        check(rule, structure, draft)
        prepared = structure.prepare(draft)
        if prepared.watch is not None:
            make_close(prepared.recipe, prepared.watch, prepared.made.plan.given_types)
    return list_compiled()[compiled:]
