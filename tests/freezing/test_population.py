"""Kernels that drawn problems need: as few as make up for what the buckets' kernels lack, chosen by surveyed times alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from contract.calls import Problem as Call
from contract.decision import How, open_core
from contract.frozen_set import load_kernels, read_op
from device.settings import find_project_root
from harness.compare.drawn.record import Contender, DrawnRow, DrawnRun, read_runs, write_runs
from harness.errors import FrozenUseError
from harness.freezing.decide.population import LEAST_GAIN, LEAST_RESCUED, LEAST_SHOWN, RESCUED, cover, find_superfluous, promote_population
from harness.freezing.decide.promote import Decision, Request
from harness.freezing.decide.recorded_times import read_population
from harness.freezing.gates.candidate import Candidate, Gate
from harness.freezing.store.index import read_frozen_op
from harness.freezing.store.verify import check_op
from harness.records.provenance import find_commit
from harness.spec import SpecError
from harness.surveys.adoption import adopt_survey, give_to_frozen, read_times
from harness.verbs.promote import promote_op
from tests.freezing.test_promote import LOADED, make_candidate, make_hold, make_session, run_promote

OLD, NEW, OTHER = "block_online/threads128", "block_online/threads256", "block_online/threads512"
ENVIRONMENT = {"device_name": "a GPU", "device_kind": "cuda", "driver_version": 13000, "toolchain": "nvcc", "host": "here"}


def make_record(path: Path, times: dict[int, dict[str, float]], op: str = "softmax") -> Path:
    """Write a record of drawn problems: microseconds by the columns of a row and by contender, and a library that nobody asks about."""
    rows = []
    for columns, by_name in times.items():
        contenders = [Contender(n, "frozen" if "__" in n else "variant", "passed", us, us, us, 0.1) for n, us in by_name.items()]
        contenders += [
            Contender("torch_eager", "peer", "passed", 0.1, 0.1, 0.1, 0.1),
            Contender("naive/threads64", "variant", "failed", 0.1),
        ]
        sizes = {"rows": 64, "columns": columns}
        rows.append(DrawnRow("rows", f"rows64_columns{columns}", sizes, {}, {}, "", "", "", contenders=tuple(contenders)))
    run = DrawnRun(op, 5, len(rows), "2026-01-01T00:00:00", "compare", "commit abc", "sm_90a", "", ENVIRONMENT, rows=tuple(rows))
    write_runs(path, op, [run])
    return path


def run_population(root: Path, candidates: list[Candidate], record: Path, **request: Any) -> list[Decision]:
    recording, problems = read_population(LOADED.op, record)
    wanted = Request(**({"command": "promote softmax"} | request))
    found = promote_population(make_session(), read_frozen_op(root, "softmax"), candidates, wanted, recording, problems, lambda _: None)
    assert check_op(root, "softmax") == []
    return found


def test_a_record_says_which_machine_code_was_timed(tmp_path: Path) -> None:
    path = make_record(tmp_path / "drawn.json", {100: {OLD: 1.0, NEW: 2.0}})
    (run,) = read_runs(path)
    write_runs(path, "softmax", [replace(run, commit="commit abc with changes", code_hashes={OLD: "1"})])
    recording, _ = read_population(LOADED.op, path)
    assert recording.dirty and recording.code_hashes == {OLD: "1"}


def find_population(root: Path) -> list[Any]:
    return [e for e in read_frozen_op(root, "softmax").entries if e["role"] == "population"]


@given(
    st.lists(st.dictionaries(st.sampled_from("abcdef"), st.floats(1.0, 100.0), min_size=1), min_size=1, max_size=12),
    st.sets(st.sampled_from("abcdef"), max_size=3),
)
def test_what_is_left_out_is_worth_no_place_and_what_is_picked_was(rows: list[dict[str, float]], base: set[str]) -> None:
    times = {str(i): row for i, row in enumerate(rows)}
    candidates = set("abcdef") - base
    picks = cover(times, base, candidates)
    names = [p.name for p in picks]
    assert len(set(names)) == len(names) and set(names) <= candidates
    # Every pick was worth its place in the set as it was then, and nothing that was left out is in the set as it is now.
    assert cover(times, base | set(names), candidates - set(names)) == []
    for pick in picks:
        assert pick.gain >= LEAST_GAIN or sum(r >= RESCUED for _, r in pick.problems) >= LEAST_RESCUED
        assert all(r > 1.0 for _, r in pick.problems) and list(pick.problems) == sorted(pick.problems, key=lambda item: -item[1])


@pytest.mark.parametrize("timed", [1, 2])
def test_a_variant_of_a_bucket_comes_in_again_with_other_code(tmp_path: Path, timed: int) -> None:
    run_promote(tmp_path, [make_candidate(OLD, 1)], make_hold({OLD: 50.0}), buckets=())
    (old,) = read_frozen_op(tmp_path, "softmax").kernels
    record = make_record(tmp_path / "drawn.json", {100: {old: 10.0, OLD: 7.0}})
    (run,) = read_runs(record)
    write_runs(record, "softmax", [replace(run, code_hashes={OLD: f"{timed:064x}"})])
    found = run_population(tmp_path, [make_candidate(OLD, timed)], record)
    assert [d.outcome for d in found] == ([] if timed == 1 else ["promoted"])
    assert len(find_population(tmp_path)) == len(found)


def test_the_same_code_with_another_launcher_comes_in_again_for_a_stated_reason(tmp_path: Path) -> None:
    run_promote(tmp_path, [make_candidate(OLD, 1)], make_hold({OLD: 50.0}), buckets=())
    (old,) = read_frozen_op(tmp_path, "softmax").kernels
    record = make_record(tmp_path / "drawn.json", {100: {old: 10.0, OLD: 7.0}})
    candidate = make_candidate(OLD, 1)
    assert run_population(tmp_path, [candidate], record) == []
    (decision,) = run_population(tmp_path, [candidate], record, force_reason="its launcher chooses larger tiles")
    assert decision.outcome == "promoted" and len(find_population(tmp_path)) == 1


def test_of_two_alike_one_is_picked_and_the_more_useful_first() -> None:
    rows = {str(i): {"base": 10.0, "a": 8.0, "b": 8.0, "c": 10.0 if i else 2.0} for i in range(8)}
    picks = cover(rows, {"base"}, {"a", "b", "c"})
    assert [p.name for p in picks] == ["a", "c"] or [p.name for p in picks] == ["c", "a"]
    assert cover(rows, {"base", "a", "c"}, {"b"}) == []


def test_two_problems_that_become_a_tenth_faster_are_worth_a_kernel_in_however_many() -> None:
    rows = {str(i): {"base": 10.0} for i in range(2000)} | {str(i): {"base": 10.0, "a": 8.9} for i in range(2)}
    assert [p.name for p in cover(rows, {"base"}, {"a"})] == ["a"]
    assert cover(rows | {"1": {"base": 10.0, "a": 9.9}}, {"base"}, {"a"}) == []


def test_what_the_population_needs_comes_into_the_set_and_goes_when_it_needs_it_no_more(tmp_path: Path) -> None:
    run_promote(tmp_path, [make_candidate(OLD, 1)], make_hold({OLD: 50.0}), buckets=())
    (old,) = read_frozen_op(tmp_path, "softmax").kernels
    before = read_frozen_op(tmp_path, "softmax").medians
    times = {100: {old: 10.0, NEW: 7.0, OTHER: 9.99}, 200: {old: 10.0, NEW: 10.5, OTHER: 9.99}, 300: {old: 10.0, OTHER: 10.0}}
    record = make_record(tmp_path / "drawn.json", times)
    candidates = [make_candidate(NEW, 2), make_candidate(OTHER, 3)]
    (decision,) = run_population(tmp_path, candidates, record, dry_run=True)
    assert decision.outcome == "promoted" and find_population(tmp_path) == []
    (decision,) = run_population(tmp_path, candidates, record)
    (entry,) = find_population(tmp_path)
    assert decision.kernel == entry["kernel"] and "rows64_columns100 by 1.43" in decision.reason and "threads256" in entry["kernel"]
    assert read_frozen_op(tmp_path, "softmax").medians == before  # nothing of the buckets was measured beside it
    evidence = json.loads((tmp_path / "softmax" / entry["evidence"]["file"]).read_text())
    (contest,) = evidence["contests"]
    assert (
        contest["problem"] == "rows64_columns100"
        and contest["contenders"] == [old, NEW, OTHER]
        and contest["median_us"] == [10.0, 7.0, 9.99]
    )
    assert evidence["conditions"]["recorded_in"].startswith("drawn.json (") and entry["status"] == "measured"

    # Times of the set as it is now: the one stays, and is not measured against itself.
    kept = make_record(tmp_path / "again.json", {100: {old: 10.0, entry["kernel"]: 7.0, OTHER: 9.99}})
    assert [(d.outcome, d.kernel) for d in run_population(tmp_path, candidates, kept)] == [("kept", entry["kernel"])]
    gone = make_record(tmp_path / "gone.json", {100 + i: {old: 10.0, entry["kernel"]: 10.0, OTHER: 5.0} for i in range(LEAST_SHOWN)})
    found = {d.outcome: d.kernel for d in run_population(tmp_path, candidates, gone)}
    assert found["dropped"] == entry["kernel"] and [e["kernel"] for e in find_population(tmp_path)] == [found["promoted"]]


@pytest.mark.parametrize(
    ("shown", "others", "expected"), [(LEAST_SHOWN, 10.0, ["a"]), (LEAST_SHOWN - 1, 10.0, []), (LEAST_SHOWN, 10.5, [])]
)
def test_a_kernel_leaves_where_many_problems_show_that_it_may_and_none_that_it_may_not(
    shown: int, others: float, expected: list[str]
) -> None:
    often = {str(i): {"base": 10.0, "a": 10.0} for i in range(shown - 1)} | {"seldom": {"base": others, "a": 10.0}}
    far = {"far": {"base": 1.0, "a": 10.0}}
    assert find_superfluous(often | far, {"base"}, {"a"}, ()) == expected
    assert find_superfluous(often | far, {"slow"}, {"a", "base"}, ()) == (["a"] if expected else []), "of two alike one stays"
    assert find_superfluous(often, {"slow"}, {"a"}, {"base"}) == expected, "what comes in counts"


def make_survey(path: Path, rows: list[dict[str, Any]], codes: dict[str, str], op: str = "softmax") -> Path:
    """Write what ``survey measure OP --variant NAME`` writes."""
    facts = {"device": "a GPU", "driver": 13000, "toolchain": "nvcc", "host": "here", "commit": "abc", "dirty": False, "command": "survey"}
    document = {"facts": facts, "op": op, "seed": 1, "asked": 2, "kernels": [], "rows": rows, "code_hashes": codes}
    path.write_text(json.dumps(document))
    return path


def test_times_beside_a_survey_say_what_the_population_needs(tmp_path: Path) -> None:
    run_promote(tmp_path, [make_candidate(OLD, 1)], make_hold({OLD: 50.0}), buckets=())
    (old,) = read_frozen_op(tmp_path, "softmax").kernels
    sizes, attributes = {"rows": 64, "columns": 100}, {"dtype": "bfloat16", "log": False}
    rows: list[dict[str, Any]] = [
        {"sizes": sizes, "attributes": attributes, "strides": {"x": 104}, "times_us": {old: 10.0, NEW: 7.0}},
        {"sizes": sizes, "attributes": attributes, "strides": {"x": [104, 1]}, "times_us": {old: 10.0, NEW: 1.0}},
    ]
    record = make_survey(tmp_path / "survey.json", rows, {NEW: f"{2:064x}"})
    recording, problems = read_population(LOADED.op, record)
    name = "rows64_columns100-dtype=bfloat16-pad_x=4"
    assert list(problems) == [name] and problems[name].padding == {"x": 4}
    assert recording.code_hashes == {NEW: f"{2:064x}"} and recording.conditions["commit"] == recording.revision == "abc"
    (decision,) = run_population(tmp_path, [make_candidate(NEW, 2)], record)
    (entry,) = find_population(tmp_path)
    assert decision.kernel == entry["kernel"] and f"{name} by 1.43" in decision.reason
    # The survey that it makes has the times of the variant as those of the kernel with this code, and of no other.
    fitted = give_to_frozen(read_times("softmax", [record]), load_kernels(read_frozen_op(tmp_path, "softmax")))
    assert fitted.rows[0]["times_us"] == {old: 10.0, entry["kernel"]: 7.0}
    other = make_survey(tmp_path / "other.json", rows[:1], {NEW: f"{3:064x}"})
    fitted = give_to_frozen(read_times("softmax", [other]), load_kernels(read_frozen_op(tmp_path, "softmax")))
    assert fitted.rows[0]["times_us"] == {old: 10.0, NEW: 7.0}


def test_a_survey_without_variants_says_nothing_of_the_population(tmp_path: Path) -> None:
    row = {"sizes": {"rows": 64, "columns": 100}, "attributes": {}, "times_us": {OLD: 1.0}}
    with pytest.raises(FrozenUseError, match="has no times of variants beside the frozen kernels: `survey measure softmax --variant NAME`"):
        read_population(LOADED.op, make_survey(tmp_path / "plain.json", [row], {}))
    with pytest.raises(FrozenUseError, match="has times of reduce, not of softmax"):
        read_population(LOADED.op, make_survey(tmp_path / "reduce.json", [row], {OLD: "0"}, "reduce"))
    with pytest.raises(FrozenUseError, match="cannot be read as times of a survey: KeyError"):
        read_population(LOADED.op, make_survey(tmp_path / "broken.json", [{"sizes": {"rows": 1}}], {OLD: "0"}))


def test_a_candidate_that_a_gate_refuses_stays_out(tmp_path: Path) -> None:
    run_promote(tmp_path, [make_candidate(OLD, 1)], make_hold({OLD: 50.0}), buckets=())
    (old,) = read_frozen_op(tmp_path, "softmax").kernels
    record = make_record(tmp_path / "drawn.json", {100: {old: 10.0, NEW: 7.0}})
    wrong = make_candidate(NEW, 2, Gate("recorded", False, "the machine code that was timed differs"))
    (decision,) = run_population(tmp_path, [wrong], record, force_reason="now")
    assert (decision.outcome, decision.reason) == ("refused", f"{NEW}: recorded: the machine code that was timed differs")
    assert find_population(tmp_path) == []


def test_what_a_gate_refuses_takes_no_ones_place(tmp_path: Path) -> None:
    run_promote(tmp_path, [make_candidate(OLD, 1)], make_hold({OLD: 50.0}), buckets=())
    (old,) = read_frozen_op(tmp_path, "softmax").kernels
    run_population(tmp_path, [make_candidate(NEW, 2)], make_record(tmp_path / "drawn.json", {100: {old: 10.0, NEW: 7.0}}))
    (held,) = find_population(tmp_path)
    refused = make_candidate(OTHER, 3, Gate("sanitizer", False, "was not sanitized"))
    found = run_population(tmp_path, [refused], make_record(tmp_path / "again.json", {100: {old: 10.0, held["kernel"]: 7.0, OTHER: 6.9}}))
    assert [(d.outcome, d.kernel) for d in found] == [("refused", ""), ("kept", held["kernel"])] and find_population(tmp_path) == [held]


def test_only_a_survey_chooses_it_and_drawn_times_make_one(tmp_path: Path) -> None:
    run_promote(tmp_path, [make_candidate(OLD, 1)], make_hold({OLD: 50.0}), buckets=())
    (old,) = read_frozen_op(tmp_path, "softmax").kernels
    times = {80 * i: {old: 10.0 + i, NEW: (10.0 + i) * (0.5 if i > 4 else 2.0)} for i in range(1, 9)}
    record = make_record(tmp_path / "drawn.json", times)
    run_population(tmp_path, [make_candidate(NEW, 2)], record)
    (entry,) = find_population(tmp_path)
    attributes = {a["name"]: a["default"] for a in read_op("softmax", tmp_path).interface["attributes"]}

    def choose(columns: int) -> tuple[str, How]:
        core = open_core(read_op("softmax", tmp_path), "sm_90a")
        asked = core.ask(core.interface.make_query(Call({"rows": 64, "columns": columns}, attributes)))
        found = core.decide(asked, asked.legal)
        assert found is not None
        return core.table.kernels[found.kernel], found.how

    assert choose(640)[0] == old and choose(640)[1] in (How.NEAR, How.PRIOR)
    adopt_survey(tmp_path, read_times("softmax", [record]), "sm_90a")
    assert choose(640) == (entry["kernel"], How.SURVEYED)
    assert choose(80) == (old, How.SURVEYED)


def test_records_that_say_nothing_are_refused(tmp_path: Path) -> None:
    alone = make_record(tmp_path / "alone.json", {100: {"block_online__threads128__00000001": 1.0}})
    with pytest.raises(FrozenUseError, match="no other kernel was timed beside the chosen one: `compare softmax --drawn N --regret`"):
        read_population(LOADED.op, alone)
    with pytest.raises(FrozenUseError, match="has no run of softmax, but of reduce"):
        read_population(LOADED.op, make_record(tmp_path / "reduce.json", {100: {OLD: 1.0, NEW: 1.0}}, "reduce"))
    with pytest.raises(FrozenUseError, match=r"nothing\.json: cannot be read: No such file"):
        read_population(LOADED.op, tmp_path / "nothing.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(FrozenUseError, match="is not a record of drawn problems"):
        read_population(LOADED.op, tmp_path / "broken.json")
    with pytest.raises(SpecError, match="--population goes without --fallback"):
        promote_op("softmax", fallback=True, population=alone)


@pytest.mark.usefixtures("device")
def test_the_verb_proves_what_is_needed_and_nothing_else(tmp_path: Path) -> None:
    held = min(e["kernel"] for e in read_op("transpose").entries if e["role"] == "winner")
    nothing = make_record(tmp_path / "nothing.json", {100: {held: 1.0, "naive/bm8_bn32": 2.0}}, "transpose")
    done = promote_op("transpose", population=nothing, dry_run=True, quiet=True)
    assert done.candidates == [] and done.decisions == []


@pytest.mark.slow  # a variant is proved, and built as it was at the commit
@pytest.mark.usefixtures("device")
def test_what_drawn_problems_need_passes_all_gates(tmp_path: Path) -> None:
    held = min(e["kernel"] for e in read_op("transpose").entries if e["role"] == "winner")
    record = make_record(tmp_path / "drawn.json", {100: {held: 2.0, "naive/bm8_bn32": 1.0}}, "transpose")
    commit = find_commit(find_project_root())
    record.write_text(record.read_text().replace("commit abc", f"commit {commit.sha}"))
    done = promote_op("transpose", population=record, dry_run=True, quiet=True, force_reason="" if not commit.dirty else "a test")
    (candidate,), (decision,) = done.candidates, done.decisions
    assert candidate.name == "naive/bm8_bn32" and all(g.passed or g.name == "clean tree" for g in candidate.gates)
    assert {"verified", "domain", "interface", "sealed", "recorded"} <= {g.name for g in candidate.gates}
    assert (decision.outcome, decision.kernel) == ("promoted", candidate.manifest["kernel"]) and done.changed == [decision]


def test_padded_rows_make_a_survey_by_their_strides(tmp_path: Path) -> None:
    record = make_record(tmp_path / "drawn.json", {100: {OLD: 1.0, NEW: 2.0}})
    document = json.loads(record.read_text())
    (row,) = document["runs"][0]["rows"]
    padded = row | {"problem": "padded", "padding": {"x": 4}}
    document["runs"][0]["rows"] = [row, padded]
    record.write_text(json.dumps(document))
    times = read_times("softmax", [record])
    assert [r["sizes"]["columns"] for r in times.rows] == [100, 100] and times.device == "a GPU"
    assert [r["strides"].get("x") for r in times.rows] == [None, 104]
    assert times.rows[0]["times_us"] == {OLD: 1.0, NEW: 2.0}  # neither the library nor the variant that was wrong
