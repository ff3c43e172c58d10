"""What must be known of a library before calls may get it in place of a kernel, found out on the GPU that its times are of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from contract.libraries.adapters import find_adapter
from contract.libraries.binding import open_cublaslt
from device.interface import Stream
from harness.benchmark.session import Session
from harness.compare.drawn.record import DrawnRow
from harness.spec import VALUE_DISTRIBUTIONS, Launchable, Problem
from harness.timing.rounds import TIMING_DISTRIBUTION
from harness.verify.allocations import POISON_FINITE
from harness.verify.case import Case, plan_arguments
from harness.verify.compare import find_different_bits
from harness.verify.inputs import make_inputs
from harness.verify.reference import compute_expected

# Of the problems that were timed, so many of the smallest are launched again: alone, and captured into a graph.
_NUM_CHECKED = 8
_WHOLE_BYTES = 2.0**25  # beyond this an output is judged on a sample, as where it was timed


def examine_libraries(
    session: Session, opened: Mapping[str, Launchable], problems: Sequence[Problem], rows: Sequence[DrawnRow]
) -> dict[str, dict[str, Any]]:
    """Return the facts of each opened library that calls of the op may get, by the peer's name; none of one that served no such call.

    ``version`` is the library's own number, ``workspace_bytes`` the most that a timed problem asks for, ``deterministic`` whether a second
    launch gave the same bits, ``capture_safe`` whether the replay of a captured one did, on ``checked`` problems. ``kinds`` has by kind of
    result (:class:`~contract.libraries.adapters.Adapter`) what is wrong with it, "" for one that is right on all inputs that the op's own
    kernels are verified on: ties, infinities and NaN among them.
    """
    op = session.loaded.op
    by_name = {p.name: p for p in problems}
    facts = {}
    for name, launchable in opened.items():
        adapter = find_adapter(name, op.name)
        if adapter is None:
            continue
        timed = [by_name[r.problem] for r in rows if (c := r.find(name)) is not None and c.us is not None]
        timed = [p for p in timed if adapter.serves(p.sizes, op.attribute_values(p)) and not any(map(np.any, p.padding.values()))]
        if timed:
            kinds = judge_kinds(session, launchable, timed, adapter.kind)
            facts[name] = {"version": open_cublaslt().version} | examine_library(session, launchable, timed) | {"kinds": kinds}
    return facts


def examine_library(session: Session, launchable: Launchable, problems: Sequence[Problem]) -> dict[str, Any]:
    """Return the workspace that problems want of a library, and whether its launches repeat, on their own and in a graph."""
    op, device = session.loaded.op, session.device
    chosen = sorted(problems, key=lambda p: op.cost(p).bytes_moved)[:_NUM_CHECKED]
    stream, workspace, repeats, replays = device.create_stream(), 0, True, True
    for problem in problems:
        workspace = max(workspace, int(launchable.workspace_bytes(**plan_arguments(op, problem))))
    for problem in chosen:
        with Case(device, op, problem) as case:
            same, captured = _launch_again(session, case, launchable, stream)
        repeats, replays = repeats and same, replays and captured
    return {"workspace_bytes": workspace, "deterministic": repeats, "capture_safe": replays, "checked": len(chosen)}


def judge_kinds(session: Session, launchable: Launchable, problems: Sequence[Problem], attribute: str) -> dict[str, str]:
    """Return by value of an attribute what is wrong with results, "" if nothing: of the smallest problem of each dtype, on all inputs."""
    op, device = session.loaded.op, session.device
    smallest: dict[tuple[Any, ...], Problem] = {}
    for problem in sorted(problems, key=lambda p: op.cost(p).bytes_moved):
        dtypes = tuple(t.resolve_dtype(problem) for t in op.inputs if t.present(problem))
        smallest.setdefault((str(op.attribute_values(problem)[attribute]), *dtypes), problem)
    found: dict[str, str] = {}
    stream = device.create_stream()
    for (kind, *_), problem in smallest.items():
        for distribution in [d for d in op.distributions if d in VALUE_DISTRIBUTIONS]:
            expected = compute_expected(op, problem, make_inputs(op, problem, distribution), whole_bytes=_WHOLE_BYTES)
            with Case(device, op, problem) as case:
                case.upload(expected.inputs)
                case.prepare(launchable)
                case.launch(launchable, stream)
                stream.synchronize()
                wrong = expected.find_wrong(case.read_outputs())
            if wrong and not found.get(kind):
                found[kind] = f"{distribution} inputs, {problem.name}: {wrong}"
        found.setdefault(kind, "")
    return found


def _launch_again(session: Session, case: Case, launchable: Launchable, stream: Stream) -> tuple[bool, bool]:
    """Return whether a second launch gives the bits of the first, and whether a captured one does when it is replayed."""
    device = session.device
    case.upload(make_inputs(case.op, case.problem, TIMING_DISTRIBUTION))
    case.prepare(launchable)
    case.launch(launchable, stream)
    stream.synchronize()
    first = case.read_outputs()
    case.poison(POISON_FINITE)
    case.launch(launchable, stream)
    stream.synchronize()
    same = _has_bits(first, case.read_outputs())
    case.poison(POISON_FINITE)
    try:
        with device.capture(stream) as graphs:
            case.launch(launchable, stream)
        graphs[0].launch(stream)
        stream.synchronize()
    except RuntimeError:
        device.take_last_error()
        device.synchronize()
        return same, False
    return same, _has_bits(first, case.read_outputs())


def _has_bits(first: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    return not any(find_different_bits(values, now[name]).any() for name, values in first.items())
