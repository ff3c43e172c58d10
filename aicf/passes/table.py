"""The passes in order, and how they run: a check of the graph and a line in the log follow each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aicf.ir import Graph, Node, check
from aicf.passes import (
    canonicalise,
    differentiate,
    flatten,
    fold_constants,
    fuse,
    fuse_chains,
    guard_precision,
    keep_copies,
    lower,
    merge_common,
    mix_precision,
    recompute,
    remove_dead,
    select,
    simplify,
    transposes,
    weight_layouts,
)
from aicf.passes.context import Context, LogEntry, Run

__all__ = ["DIFFERENTIATE", "FUSE_CHAINS", "PASSES", "Context", "LogEntry", "Pass", "run_passes"]

# The pass behind which a graph has all that there is to compute, and the one that may make kernels that nobody has frozen.
DIFFERENTIATE, FUSE_CHAINS = "differentiate", "fuse chains"


@dataclass(frozen=True)
class Pass:
    """A row of the table. ``is_exact``: the same bits come out; the others round at other places."""

    name: str
    run: Run
    is_exact: bool = True
    is_needed: bool = False  # part of compilation itself, also where passes are off


PASSES: tuple[Pass, ...] = (
    Pass("canonicalise", canonicalise.run),
    Pass("fold constants", fold_constants.run),
    Pass("simplify", simplify.run),
    Pass("merge common", merge_common.run),
    Pass("choose layouts", weight_layouts.run, is_exact=False),
    Pass(DIFFERENTIATE, differentiate.run, is_needed=True),
    Pass("remove dead", remove_dead.run),
    Pass("guard precision", guard_precision.run, is_needed=True),
    Pass("mix precision", mix_precision.run, is_exact=False, is_needed=True),
    Pass("canonicalise again", canonicalise.run),
    Pass("fold constants again", fold_constants.run),
    Pass("simplify again", simplify.run),
    Pass("merge common again", merge_common.run),
    Pass("remove dead again", remove_dead.run),
    Pass("drop transposes", transposes.run, is_exact=False),
    Pass("fuse", fuse.run, is_exact=False),
    Pass("add in products", fuse.add_in_products, is_exact=False),
    Pass("join sums", flatten.join_sums, is_exact=False),
    Pass("lower", lower.run, is_exact=False, is_needed=True),
    Pass("remove dead last", remove_dead.run),
    Pass(FUSE_CHAINS, fuse_chains.run, is_exact=False),
    Pass("remove dead constants", remove_dead.run),
    Pass("keep copies", keep_copies.run),
    Pass("flatten", flatten.run),
    Pass("select", select.run, is_needed=True),
    Pass("recompute", recompute.run, is_needed=True),
)


def run_passes(
    graph: Graph, context: Context, passes: Sequence[Pass] = PASSES, watch: Callable[[Pass, Graph, Graph], None] | None = None
) -> tuple[Graph, list[LogEntry]]:
    """Return the graph after all passes, and the log. ``watch`` is told of each pass: the graph before and after it.

    Raises :class:`~aicf.errors.GraphError` where a pass makes a graph that is not valid, and what passes raise.
    """
    sound: dict[int, Node] = {}
    check(graph, "as recorded", sound)
    log = []
    for each in passes:
        context.notes = []
        made = each.run(graph, context)
        if made != graph:  # one that is as it was is valid still
            check(made, f"after {each.name}", sound)
        log.append(LogEntry(each.name, len(graph.nodes), len(made.nodes), tuple(context.notes)))
        if watch is not None:
            watch(each, graph, made)
        graph = made
    return graph, log
