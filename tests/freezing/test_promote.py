"""Who takes a bucket: from contests on a GPU, provisionally without one, by force; and what is written then."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from contract.layout import hash_value, make_seal
from harness.build.builder import BuildResult
from harness.build.generate import generate_sources
from harness.build.interface import describe_interface, read_api
from harness.compare.contest import Contest, judge_rounds
from harness.compare.variants import Held
from harness.discover import find_op
from harness.freezing.decide.contests import Match
from harness.freezing.decide.promote import PROMOTION, Decision, Request, promote
from harness.freezing.decide.ruling import judge_challenger, share_error
from harness.freezing.gates.candidate import Candidate, Gate
from harness.freezing.seal.sources import collect_sources
from harness.freezing.store.index import read_frozen_op
from harness.freezing.store.verify import check_op
from harness.spec import Problem
from harness.targets import find_target
from harness.timing.stats import StopReason
from harness.timing.timer import Mode
from harness.timing.verdicts import Verdict, is_void
from tests.freezing.frozen_sets import make_manifest
from tests.harness.noise import NOISES, make_rounds

LOADED = find_op("softmax")
BUCKET = "sm_90a/any/any/any/to_1024"
OLD, NEW = "block_online/threads128", "block_online/threads256"


class FakeRecords:
    def read_run(self, run_id: int) -> Any:
        return SimpleNamespace(commit="c" * 40)

    def read_result(self, result_id: int) -> Any:
        return SimpleNamespace(uid=f"{result_id:032d}")


def make_session() -> Any:
    environment = SimpleNamespace(device_name="a GPU", driver_version=13000, toolchain="nvcc", host="here")
    return SimpleNamespace(loaded=LOADED, target=find_target("h200"), environment=environment, records=FakeRecords(), run_id=1)


def make_candidate(name: str, number: int, *gates: Gate) -> Candidate:
    (variant,) = LOADED.op.select_variants([name])
    kernel = f"{variant.symbol_suffix}__{number:08x}"
    sources = {"softmax/launcher.cu": b"// " + name.encode(), "softmax/op.py": b"OP = None\n"}
    manifest = make_manifest(kernel, {f"sources/{n}": c for n, c in sources.items()}) | {"op": "softmax", "variant": name}
    manifest["interface"] = hash_value(describe_interface(LOADED.op, read_api(LOADED)))
    manifest["entry_points"] = {call: f"softmax_{call}__{kernel}" for call in manifest["entry_points"]}
    manifest |= {"domain": [{"count": {"columns": 1}, "max": 1 << 20}, {"tensor": "x", "address": 16}]}
    manifest["prior"]["tile"] = {"columns": 32}
    manifest["build"]["source"] = "sources/softmax/launcher.cu"
    manifest["build"]["machine_code"] = {"sm_90a": f"{number:064x}"}
    build = BuildResult(variant, Path("none.so"), f"{number:064x}", "key", None, None, 0.0, cached=True)
    passed = gates or (Gate("verified", True, "3 problems"),)
    return Candidate(build, Path("binding.so"), list(passed), sources, manifest | {"seal": make_seal(manifest)})


def make_hold(times_us: Mapping[str, float], calls: list[Any] | None = None, seed: int = 1) -> Callable[..., list[Match]]:
    """Return what stands for measuring: contests whose contenders take these times, by variant or kernel."""

    def hold(problems: Sequence[Problem], incumbent: Any, candidates: Sequence[tuple[BuildResult, Path]]) -> list[Match]:
        names = [b.variant.name for b, _ in candidates]
        if incumbent is not None:
            names.insert(0, incumbent["kernel"])
        elif len(names) == 1:
            names.append(f"{names[0]} (copy)")
        if calls is not None:
            calls.append((incumbent and incumbent["kernel"], [p.name for p in problems]))
        criteria = share_error(PROMOTION, len(problems))
        matches = []
        for i, problem in enumerate(problems):
            line_up = [names[0], *names]
            times = [times_us[n.removesuffix(" (copy)")] for n in line_up]
            rounds = make_rounds(np.random.default_rng(seed + i), NOISES["white"], times, 96)
            outcomes, control = judge_rounds(rounds, np.full(rounds.shape, np.nan), criteria)
            contenders = (names[0], f"{names[0]} (control)", *names[1:])
            void = is_void(control, criteria.margin)
            contest = Contest(contenders, rounds, np.full(rounds.shape, np.nan), tuple(outcomes), control, void, 0, StopReason.SETTLED)
            held = Held(problem, Mode.COLD, {}, contest, ("",) * len(contenders), tuple(range(len(contenders))))
            matches.append(Match(held, tuple(names)))
        return matches

    return hold


def run_promote(root: Path, candidates: Sequence[Candidate], hold: Any, **request: Any) -> list[Decision]:
    frozen = read_frozen_op(root, "softmax")
    wanted = Request(**({"buckets": (BUCKET,), "command": "promote softmax"} | request))
    decisions = promote(make_session(), frozen, candidates, wanted, hold, lambda _: None)
    if (root / "softmax").exists():
        assert check_op(root, "softmax") == []
    return decisions


def find_holder(root: Path) -> Any:
    return next((e for e in read_frozen_op(root, "softmax").entries if e["bucket"]["region"] == "to_1024"), None)


def test_without_a_gpu_an_entry_is_provisional_and_never_replaces_a_measured_one(tmp_path: Path) -> None:
    (decision,) = run_promote(tmp_path, [make_candidate(OLD, 1)], None)
    assert (decision.outcome, find_holder(tmp_path)["status"]) == ("provisional", "provisional")
    (decision,) = run_promote(tmp_path, [make_candidate(NEW, 2)], None)
    assert decision.outcome == "provisional" and "threads256" in find_holder(tmp_path)["kernel"]
    # A GPU measured: no contest with a provisional entry, whatever its speed.
    calls: list[Any] = []
    (decision,) = run_promote(tmp_path, [make_candidate(OLD, 1)], make_hold({OLD: 50.0}, calls))
    assert decision.outcome == "promoted" and calls[0][0] is None
    assert find_holder(tmp_path)["status"] == "measured"
    (decision,) = run_promote(tmp_path, [make_candidate(NEW, 2)], None)
    assert decision.outcome == "refused" and "was measured on a GPU" in decision.reason
    assert "threads128" in find_holder(tmp_path)["kernel"]


def test_a_faster_kernel_takes_the_bucket_with_its_times_as_evidence(tmp_path: Path) -> None:
    run_promote(tmp_path, [make_candidate(OLD, 1)], make_hold({OLD: 50.0}))
    old = find_holder(tmp_path)["kernel"]
    (decision,) = run_promote(tmp_path, [make_candidate(NEW, 2)], make_hold({old: 50.0, NEW: 49.0}))
    assert decision.outcome == "promoted" and decision.incumbent == old
    assert "FASTER on 2 of 2 problems, SLOWER on none" in decision.reason
    frozen = read_frozen_op(tmp_path, "softmax")
    entry = find_holder(tmp_path)
    assert "threads256" in entry["kernel"] and "forced" not in entry
    assert {m["kernel"] for m in frozen.medians} == {entry["kernel"]}, "times of kernels that no entry names are not kept"
    assert [m["median_us"] for m in frozen.medians] == pytest.approx([49.0] * 2, rel=0.01)
    evidence = json.loads((tmp_path / "softmax" / entry["evidence"]["file"]).read_text())
    assert evidence["incumbent"] == old and evidence["conditions"]["device"] == "a GPU"
    assert len(evidence["contests"]) == 2 and len(evidence["contests"][0]["times_us"][0]) == 192
    (again,) = run_promote(tmp_path, [make_candidate(NEW, 2)], make_hold({}))
    assert (again.outcome, again.reason) == ("kept", "it has the bucket already")
    other = make_candidate(NEW, 3)  # other sources, the same machine code
    other.manifest["build"]["machine_code"] = {"sm_90a": f"{2:064x}"}
    other.manifest["seal"] = make_seal({k: v for k, v in other.manifest.items() if k != "seal"})
    (again,) = run_promote(tmp_path, [other], make_hold({}))
    assert (again.outcome, again.kernel) == ("kept", entry["kernel"])
    # Code of the host may have been mended: a stated reason replaces the kernel.
    hold = make_hold({entry["kernel"]: 49.0, NEW: 49.0})
    (forced,) = run_promote(tmp_path, [other], hold, force_reason="a check was missing")
    assert forced.outcome == "promoted" and find_holder(tmp_path)["kernel"] == forced.kernel != entry["kernel"]


def test_what_was_mended_replaces_itself_whatever_else_is_offered(tmp_path: Path) -> None:
    run_promote(tmp_path, [make_candidate(OLD, 1)], make_hold({OLD: 50.0}))
    old = find_holder(tmp_path)["kernel"]
    hold = make_hold({old: 50.0, OLD: 50.0, NEW: 40.0})
    (forced,) = run_promote(tmp_path, [make_candidate(NEW, 2), make_candidate(OLD, 3)], hold, force_reason="it wrote beside its rows")
    assert forced.outcome == "promoted" and forced.kernel != old and forced.kernel.startswith(old.rsplit("__", 1)[0])


@pytest.mark.parametrize(("time_us", "why"), [(50.0, "not FASTER anywhere"), (49.8, "not FASTER anywhere"), (51.0, "not FASTER anywhere")])
def test_the_incumbent_stays_unless_the_challenger_is_faster_by_the_margin(tmp_path: Path, time_us: float, why: str) -> None:
    run_promote(tmp_path, [make_candidate(OLD, 1)], make_hold({OLD: 50.0}))
    old = find_holder(tmp_path)["kernel"]
    hold = make_hold({old: 50.0, NEW: time_us})
    (decision,) = run_promote(tmp_path, [make_candidate(NEW, 2)], hold)
    assert decision.outcome == "kept" and why in decision.reason
    assert find_holder(tmp_path)["kernel"] == old
    (forced,) = run_promote(tmp_path, [make_candidate(NEW, 2)], hold, force_reason="it needs less shared memory")
    assert forced.outcome == "promoted"
    assert find_holder(tmp_path)["forced"] == "it needs less shared memory"


def test_of_several_candidates_the_fastest_takes_an_empty_bucket(tmp_path: Path) -> None:
    names = [OLD, NEW, "block_online/threads1024"]
    hold = make_hold({names[0]: 50.0, names[1]: 45.0, names[2]: 47.0})
    (decision,) = run_promote(tmp_path, [make_candidate(n, i) for i, n in enumerate(names)], hold)
    assert decision.outcome == "promoted" and "threads256" in decision.kernel
    slower = [make_candidate(names[2], 2), make_candidate(names[0], 0)]
    (decision,) = run_promote(tmp_path, slower, make_hold({decision.kernel: 45.0, names[2]: 47.0, names[0]: 50.0}))
    assert decision.outcome == "kept"


def test_a_gate_that_refuses_stops_a_candidate_and_only_some_can_be_forced(tmp_path: Path) -> None:
    dirty, wrong = Gate("clean tree", False, "2 files differ"), Gate("verified", False, "verify says race")
    (decision,) = run_promote(tmp_path, [make_candidate(OLD, 1, dirty)], None)
    assert (decision.outcome, decision.reason) == ("refused", f"{OLD}: clean tree: 2 files differ")
    (decision,) = run_promote(tmp_path, [make_candidate(OLD, 1, dirty, wrong)], None, force_reason="now")
    assert (decision.outcome, decision.reason) == ("refused", f"{OLD}: verified: verify says race")
    assert not (tmp_path / "softmax").exists()
    (decision,) = run_promote(tmp_path, [make_candidate(OLD, 1, dirty)], None, force_reason="now")
    assert decision.outcome == "provisional" and find_holder(tmp_path)["forced"] == "now"


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    (decision,) = run_promote(tmp_path, [make_candidate(OLD, 1)], make_hold({OLD: 50.0}), dry_run=True)
    assert decision.outcome == "promoted"
    assert list(tmp_path.iterdir()) == []


def test_a_kernel_takes_only_buckets_that_it_serves(tmp_path: Path) -> None:
    name = "row_in_registers/threads128_rows1_vectors2"  # 1024 columns at most
    decisions = run_promote(tmp_path, [make_candidate(name, 1)], None, buckets=())
    outcomes = {d.bucket.split("/")[-1]: d.outcome for d in decisions}
    short = ("to_16", "tiny_rows", "short_rows", "to_512", "to_1024")
    long = ("to_2048", "to_4096", "middle_rows", "to_16384", "few_long", "shared", "to_65536", "to_131072", "to_262144", "long_rows")
    assert outcomes == dict.fromkeys(short, "provisional") | dict.fromkeys(long, "refused")


def test_fallbacks_stand_beside_each_other(tmp_path: Path) -> None:
    run_promote(tmp_path, [make_candidate(OLD, 1)], None, buckets=(), fallback=True)
    run_promote(tmp_path, [make_candidate("naive/threads64", 2)], None, buckets=(), fallback=True)
    entries = read_frozen_op(tmp_path, "softmax").entries
    assert [e["role"] for e in entries] == ["fallback", "fallback"]


def judge_two(first: float, second: float, seed: int) -> Any:
    """Judge a challenger that takes these times on two problems where the incumbent takes 50 us."""
    criteria = share_error(PROMOTION, 2)
    outcomes = {}
    for name, time_us in (("one", first), ("two", second)):
        rounds = make_rounds(np.random.default_rng([seed, ord(name[0])]), NOISES["wandering"], [50.0, 50.0, time_us], 96)
        found, _ = judge_rounds(rounds, np.full(rounds.shape, np.nan), criteria)
        outcomes[name] = found[0]
    return judge_challenger(outcomes, PROMOTION), outcomes


def test_a_kernel_does_not_take_a_bucket_from_its_own_copy() -> None:
    assert sum(judge_two(50.0, 50.0, seed)[0].winner is not None for seed in range(200)) <= 2


def test_a_win_of_two_percent_is_found() -> None:
    assert sum(judge_two(49.0, 49.0, seed)[0].winner is not None for seed in range(40)) >= 36


def test_a_kernel_that_loses_somewhere_does_not_take_the_bucket() -> None:
    ruling, outcomes = judge_two(45.0, 52.0, 1)
    assert outcomes["one"].verdict is Verdict.FASTER and ruling.winner is None
    assert "SLOWER on two" in ruling.reason and "should be divided" in ruling.reason


def test_a_problem_without_an_outcome_keeps_the_incumbent() -> None:
    ruling = judge_challenger({"one": "void: the incumbent differs from its own copy"}, PROMOTION)
    assert ruling.winner is None and ruling.reason.startswith("one: void")


def leave_out(hold: Any, not_served: Mapping[str, str], *, gone: bool = False) -> Any:
    """Return what measures as ``hold`` does, but on the second problem, where somebody does not serve and nobody is timed."""

    def run(problems: Sequence[Problem], *rest: Any) -> list[Match]:
        found = hold(problems, *rest)
        held = Held(found[1].problem, Mode.COLD, not_served)
        return [found[0], *([] if gone else [Match(held, found[1].names)]), *found[2:]]

    return run


@pytest.mark.parametrize("who", ["the incumbent", "the candidate", "nobody says"])
def test_a_problem_that_was_not_measured_keeps_the_incumbent(tmp_path: Path, who: str) -> None:
    run_promote(tmp_path, [make_candidate(OLD, 1)], make_hold({OLD: 50.0}))
    old = find_holder(tmp_path)["kernel"]
    reasons = {"the incumbent": {}, "the candidate": {NEW: "rows too long"}, "nobody says": {}}[who]
    hold = leave_out(make_hold({old: 50.0, NEW: 40.0}), reasons, gone=who == "nobody says")
    (decision,) = run_promote(tmp_path, [make_candidate(NEW, 2)], hold)
    words = {"the incumbent": f"not measured: {old} does not serve it", "the candidate": "not measured: rows too long"}
    assert decision.outcome == "kept" and decision.kernel == old
    problem = LOADED.op.select_problems("bench")
    named = [p.name for p in problem if f"{p.name}: " in decision.reason]
    assert len(named) == 1 and words.get(who, "no contest was held") in decision.reason
    assert find_holder(tmp_path)["kernel"] == old


def test_a_kernel_forced_past_an_unmeasured_problem_says_so_in_its_evidence(tmp_path: Path) -> None:
    run_promote(tmp_path, [make_candidate(OLD, 1)], make_hold({OLD: 50.0}))
    old = find_holder(tmp_path)["kernel"]
    hold = leave_out(make_hold({old: 50.0, NEW: 40.0}), {NEW: "rows too long"})
    (decision,) = run_promote(tmp_path, [make_candidate(NEW, 2)], hold, force_reason="the rest is enough")
    assert decision.outcome == "promoted" and "not measured: rows too long" in decision.reason
    evidence = json.loads((tmp_path / "softmax" / find_holder(tmp_path)["evidence"]["file"]).read_text())
    assert [c.get("verdict", "") for c in evidence["contests"]][1] == f"not held: {NEW}: rows too long"
    assert evidence["contests"][1]["times_us"] == [] and len(evidence["contests"][0]["times_us"]) == 3


def test_an_empty_bucket_is_not_taken_with_an_unmeasured_problem(tmp_path: Path) -> None:
    hold = leave_out(make_hold({OLD: 50.0, NEW: 40.0}), {NEW: "rows too long", OLD: ""})
    (decision,) = run_promote(tmp_path, [make_candidate(OLD, 1), make_candidate(NEW, 2)], hold)
    assert decision.outcome == "refused" and "not measured: rows too long" in decision.reason
    assert find_holder(tmp_path) is None


def test_the_closure_of_sources_is_what_the_op_is_made_of() -> None:
    for name in ("softmax", "gemm_bias_act"):
        loaded = find_op(name)
        sources = collect_sources(loaded)
        assert {f"{name}/launcher.cu", f"{name}/kernels.cu", f"{name}/api.hpp", f"{name}/op.py", f"{name}/pybind.cpp"} <= set(sources)
        assert "common/status.h" in sources and not any("test_" in s or "peers" in s for s in sources)
        generated = {n: text.encode() for n, text in generate_sources(loaded).items()}
        assert all(content == (generated[s] if s in generated else (loaded.include_dir / s).read_bytes()) for s, content in sources.items())
