"""The gates that a kernel passes on its way into the frozen set; each says pass, or why it refuses."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from contract.extension import find_earlier_calls
from contract.index import Index
from contract.layout import hash_value
from device import UnavailableError
from device.settings import find_project_root
from harness.benchmark.session import Judged, Session
from harness.benchmark.workers import Job, verify_variants
from harness.build.binding import open_variant
from harness.build.interface import describe_interface, read_api
from harness.build.resources import find_occupancy
from harness.errors import BuildError, FrozenError
from harness.freezing.gates.candidate import Candidate, Gate
from harness.freezing.gates.domain import find_disagreement
from harness.freezing.gates.interface_calls import find_wrong_call
from harness.freezing.gates.provenance import find_move, find_wrong_origin, name_commit
from harness.freezing.seal.manifest import make_manifest
from harness.freezing.seal.rebuild import prove_sealed
from harness.freezing.seal.sources import collect_sources
from harness.model.launches import examine_launch
from harness.records.tables import Result
from harness.spec import Launchable, Problem
from harness.verify.case import Case
from harness.verify.judge import VERIFY_VERSION
from harness.verify.plan import THOROUGH, Effort, includes_proof, make_plan


def find_changes(root: Path) -> str:
    """Return "" where the checkout has no changes outside ``frozen/``, which promotion itself writes; else what git says."""
    command = ["git", "-C", str(root), "status", "--porcelain", "--", ".", ":(exclude)frozen"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"git cannot be run: {error}"
    if done.returncode != 0:
        return f"{root} is not a git checkout, so no commit says what was promoted"
    lines = done.stdout.splitlines()
    return f"{len(lines)} files differ from the commit, {lines[0].strip()} the first: commit them" if lines else ""


def pass_gates(
    session: Session, frozen: Index, candidate: Candidate, judged: Judged, say: Callable[[Gate], None], sources_at: str = ""
) -> None:
    """Take a candidate through the gates that need no other candidate and no compiler; its manifest is made on the way.

    ``sources_at`` is the commit that the op was taken from, where that is not the checkout's.
    """

    def note(name: str, fault: str, detail: str) -> bool:
        gate = Gate(name, not fault, fault or detail)
        candidate.gates.append(gate)
        say(gate)
        return gate.passed

    build = candidate.build
    changes = find_changes(find_project_root())
    note("clean tree", changes or find_move(session), f"commit {session.commit.sha[:12]}")
    if build.library is None or build.resources is None:
        note("built", build.error or "ptxas reports no kernel", "")
        return
    kernel = session.loaded.op.find_kernel(build.variant.kernel)
    spilled, allowed = build.resources.spill_bytes, kernel.max_spill_bytes
    note("no spills", f"{spilled} bytes spilled, {allowed} allowed" if spilled > allowed else "", f"{spilled} bytes, {allowed} allowed")
    note("no warnings", "; ".join(build.resources.advice), "ptxas has no advice")
    record = judged.earlier or session.records.read_result(judged.record_id)
    candidate.sources = collect_sources(session.loaded)
    fault = _find_unverified(session, judged, record) or find_wrong_origin(session, build, record, candidate.sources)
    if not note("verified", fault, _describe_verified(record)):
        return
    sanitized, by = _check_sanitized(session, candidate, record)
    note("sanitizer", sanitized, by)
    launchable = open_variant(session.loaded.op, candidate.binding, build.library, build.variant)
    if kernel.domain is None:
        note("domain", f"kernel {kernel.name} declares no domain in op.py: say there what its supports accepts", "")
        return
    domain = kernel.domain(build.variant.tunables)
    note("domain", find_disagreement(session.loaded.op, domain, launchable), f"{len(domain)} conditions agree with supports on 2000 calls")
    interface = describe_interface(session.loaded.op, read_api(session.loaded))
    fault = _compare_interface(frozen, interface) or find_wrong_call(session, build, launchable, interface)
    note("interface", fault, f"{interface['struct']}, {len(interface['fields'])} fields, and calls by it come out right")
    facts = _collect_facts(session, candidate, record, launchable, by, name_commit(session, record, changes, sources_at))
    candidate.manifest = make_manifest(
        session.loaded, build, session.target, session.toolchain, candidate.sources, interface=interface, facts=facts
    )


def _find_unverified(session: Session, judged: Judged, record: Result) -> str:
    if not judged.ok:
        return f"verify says {judged.reason}; `python -m harness verify {session.loaded.op.name} --variant {judged.variant.name}` says more"
    if record.problem != "*":
        return f"record {record.id} verifies only {record.problem}, not all problems"
    problems = {p["problem"]: p["status"] for p in record.figures["problems"]}
    plan = make_plan(session.loaded.op.narrow(judged.variant), Effort())
    if missing := [s.problem.name for s in plan if s.problem.name not in problems]:
        return f"problem {missing[0]} was not run"
    if not includes_proof(record.figures, THOROUGH.proof):
        return f"record {record.id} proves only the problems that op.py lists: run `python -m harness verify {session.loaded.op.name}`"
    return ""


def _describe_verified(record: Result) -> str:
    problems = record.figures.get("problems", [])
    passed = sum(p["status"] == "passed" for p in problems)
    return (
        f"{passed} problems right, {len(problems) - passed} not served, by record {record.uid[:12]} on {record.run.environment.device_name}"
    )


def _check_sanitized(session: Session, candidate: Candidate, record: Result) -> tuple[str, str]:
    """Return ("", who sanitized), or (why not, "").

    On a GPU the emulated device did, or does it now: its earlier verdict on the same machine code counts.
    """
    earlier = None
    if not session.device.is_emulated:
        build, op = candidate.build, session.loaded
        earlier = session.records.find_verified_code(op.op.name, build.code_hash, op.spec_hash, VERIFY_VERSION, "emulated")
        if earlier is not None and not includes_proof(earlier.figures, THOROUGH.proof):
            earlier = None
    served = [p for p in (earlier or record).figures["problems"] if p["status"] == "passed"]
    if session.device.is_emulated or earlier is not None:
        unchecked = [p["problem"] for p in served if "sanitizer" not in p["checks"] and not p.get("large")]
        by = f", by record {earlier.uid[:12]}" if earlier else ""
        return (f"problem {unchecked[0]} was not sanitized", "") if unchecked else ("", f"emulated device, {len(served)} problems{by}")
    assert candidate.build.library is not None
    setup, _ = session.make_worker_setup(candidate.binding, 1, effort=THOROUGH)
    try:
        job = Job(candidate.build.variant, candidate.build.library)
        setup = replace(setup, device="emulated", emulator_workers=session.settings.jobs)
        ((_, result),) = verify_variants(setup, session.loaded.op.name, [job], num_workers=1)
    except UnavailableError as error:
        return f"the emulated device, which sanitizes, cannot be opened here: {error}", ""
    if not result.ok:
        return f"the emulated device says {result.reason}: {result.all_faults[0].describe() if result.all_faults else ''}", ""
    return "", f"emulated device beside {session.device.properties.name}, {result.num_passed} problems"


def _compare_interface(frozen: Index, interface: Mapping[str, Any]) -> str:
    description = frozen.description
    if description is None or not frozen.entries or hash_value(description["interface"]) == hash_value(interface):
        return ""
    if find_earlier_calls(description["interface"], interface) is not None:
        return ""
    return (
        "api.hpp neither is that of the op's frozen kernels nor extends it, and one program cannot hold both: "
        "demote them first (`frozen demote --all`)"
    )


def _find_worst(problems: Sequence[Mapping[str, Any]], figure: str) -> float:
    """Return the greatest finite figure; one that JSON has as a text says that error and bound were infinite."""
    return max((p[figure] for p in problems if isinstance(p[figure], float | int)), default=0.0)


def _collect_facts(
    session: Session, candidate: Candidate, record: Result, launchable: Launchable, sanitized_by: str, commit: str
) -> dict[str, Any]:
    problems = [p for p in record.figures["problems"] if p["status"] == "passed"]
    checks = sorted({c for p in problems for c in p["checks"]})
    workspace = _find_workspace(session, launchable)
    return {
        "workspace": {"kind": "query" if workspace else "none", "max_bytes": workspace},
        "capture_safe": all("capture" in p["checks"] or p["hidden"] for p in problems),
        "tolerance": {
            "rule": f"sources/{session.loaded.op.name}/op.py: tolerance()",
            "worst_error_ratio": _find_worst(problems, "max_error_ratio"),
            "worst_ulp": _find_worst(problems, "max_ulp"),
        },
        "prior": _find_prior(session, candidate, launchable),
        "verified": {
            "record": record.uid,
            "protocol": VERIFY_VERSION,
            "problems": len(problems),
            "checks": checks,
            "sanitized_by": sanitized_by or "nobody",
            "device": record.run.environment.device_name,
            "commit": commit,
        },
    }


def _find_workspace(session: Session, launchable: Launchable) -> int:
    """Return the most workspace in bytes that a listed problem of moderate size asks for."""
    most = 0
    for problem in session.loaded.op.select_problems("verify"):
        with Case(session.device, session.loaded.op, problem) as case:
            if not launchable.supports(**case.arguments):
                most = max(most, launchable.workspace_bytes(**case.arguments))
    return most


def _find_prior(session: Session, candidate: Candidate, launchable: Launchable) -> dict[str, Any]:
    """Return what an estimate of the kernel's time needs: its tile, how many blocks the chip runs at once, and the chip's peak rates."""
    target, op = session.target, session.loaded.op
    kernel = op.find_kernel(candidate.build.variant.kernel)
    blocks = 1
    for problem in op.select_problems("verify"):
        facts = _launch_once(session, problem, launchable)
        if facts and candidate.build.resources is not None:
            node = facts[0]
            threads = node.block[0] * node.block[1] * node.block[2]
            blocks = find_occupancy(candidate.build.resources, threads, node.dynamic_shared_bytes, target).blocks_per_sm
            break
    return {
        "tile": dict(kernel.tile(candidate.build.variant.tunables)) if kernel.tile else {},
        "slots": target.num_sms * max(blocks, 1),
        "flops_per_s": dict(target.peak_flops),
        "bytes_per_s": target.dram_bytes_per_s,
    }


def _launch_once(session: Session, problem: Problem, launchable: Launchable) -> Sequence[Any]:
    return examine_launch(session.device, session.loaded.op, problem, launchable).nodes


def seal_candidates(session: Session, candidates: Sequence[Candidate], say: Callable[[Candidate, Gate], None]) -> None:
    """Take candidates that have a manifest through the gate that builds them from their sealed sources alone, several at a time."""
    waiting = [c for c in candidates if c.manifest]
    with ThreadPoolExecutor(session.settings.jobs) as pool:
        for candidate, (fault, detail) in zip(waiting, pool.map(lambda c: _seal(session, c), waiting), strict=True):
            candidate.gates.append(Gate("sealed", not fault, fault or detail))
            say(candidate, candidate.gates[-1])


def _seal(session: Session, candidate: Candidate) -> tuple[str, str]:
    try:
        with tempfile.TemporaryDirectory() as scratch:
            fault = prove_sealed(candidate.manifest, candidate.sources, session.toolchain, Path(scratch))
    except (BuildError, FrozenError) as error:
        return str(error), ""
    name = candidate.manifest["kernel"]
    why = "; it depends on where it is built" if fault else ""
    return fault + why, f"{name}: {len(candidate.sources)} files, built from them alone to the machine code that was verified"
