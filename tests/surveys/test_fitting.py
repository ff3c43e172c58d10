"""Surveys: models are found again from the times that they make, and the committed one from the committed times; choices are judged."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Collection
from dataclasses import replace
from operator import contains
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from contract.axes import split_survey_group
from contract.calls import Problem
from contract.decision import DecisionCore, How, open_core
from contract.frozen_set import FrozenOp, list_ops, read_op
from contract.layout import find_frozen_dir
from harness.__main__ import build_app
from harness.errors import FrozenError, FrozenUseError
from harness.freezing.store.changes import demote
from harness.freezing.store.index import read_frozen_op
from harness.freezing.store.verify import check_op
from harness.surveys.adoption import Times, adopt_survey, fit_times, give_to_frozen, read_times
from harness.surveys.fitting import Measured, ask, fit_survey, solve_heeding_far
from harness.surveys.least_squares import solve_nonnegative
from harness.surveys.records import find_folder
from harness.surveys.regret import Summary, choose, cross_validate, judge
from harness.surveys.shapes import list_shapes

OP, ARCH = "gemm_bias_act", "sm_90a"
_PARTS = (
    "survey-{}",
    "times-{}-fp32",
    "times-{}-listed",
    "survey-{}-2",
    "drawn-{}",
    "variants-{}",
    "survey-{}-3",
    "evenly-{}",
    "cycles-{}",
    "lines-{}",
    "clusters-{}",
    "parts-{}",
    "decode-{}",
    "apart-{}",
    "twos-{}",
    "fp32-{}",
    "seen-{}",
    "more-{}",
    "more-{}-2",
    "fp32-{}-2",
    "more-{}-3",
    "more-{}-4",
    "fp32-{}-3",
    "drawn-{}-2",
)
TIMES = [find_folder() / f"h200-{part.format(OP)}.json" for part in _PARTS]
DEVICE = "NVIDIA H200"
FACTS = {"device": DEVICE, "record": "none"}
BFLOAT16 = {"dtype": "bfloat16", "b_layout": "nk", "act": "silu", "with_bias": True}


@pytest.fixture(scope="module")
def frozen() -> FrozenOp:
    """The project's kernels without a survey."""
    return replace(read_op(OP), surveys={})


def open_surveyed(frozen: FrozenOp, survey: dict[str, Any]) -> DecisionCore:
    return open_core(replace(frozen, surveys={ARCH: survey}), ARCH)


def draw_times(core: DecisionCore, count: int, noise: float) -> list[dict[str, Any]]:
    """Problems with times that the core's survey predicts, off by up to a share."""
    generator = random.Random(5)
    rows = []
    for _ in range(count):
        query = core.interface.make_query(Problem({s: 8 * int(2 ** generator.uniform(3, 10)) for s in "KMN"}, BFLOAT16))
        asked = core.ask(query)
        predicted = core.predict_us(asked, asked.legal)
        assert predicted is not None
        times = {core.table.kernels[i]: us * (1 + generator.uniform(-noise, noise)) for i, us in predicted.items() if asked.legal >> i & 1}
        rows.append({"sizes": dict(query.by_size), "attributes": dict(query.attributes), "times_us": times})
    return rows


def find_rivals(frozen: FrozenOp) -> set[str]:
    return {e["kernel"] for e in frozen.entries if e["role"] != "fallback"}


def make_survey(frozen: FrozenOp, keep: Collection[str] = ()) -> dict[str, Any]:
    """A survey of all kernels, or those to keep, whose weights are made up and which no problem sets right."""
    generator = random.Random(1)
    names = [name for name, kernel in frozen.kernels.items() if kernel.arch == ARCH and (not keep or name in keep)]
    weights = {name: [generator.uniform(2, 9), generator.uniform(0.1, 2), 1.1, generator.uniform(0.5, 1.5), 0.0] for name in names}
    return {"kind": "survey", "arch": ARCH, "device": "made up", "record": "none", "weights": weights, "groups": []}


def predict(core: DecisionCore, row: Any) -> dict[str, float]:
    asked = ask(core, row)
    return {core.table.kernels[i]: us for i, us in (core.predict_us(asked, asked.legal) or {}).items()}


@pytest.mark.slow
def test_the_committed_survey_comes_out_of_the_committed_times_bit_for_bit() -> None:
    committed = read_op(OP).surveys[ARCH]
    found = fit_times(find_frozen_dir(), read_times(OP, TIMES), ARCH)
    assert found.survey == committed
    assert json.dumps(found.survey, sort_keys=True) == json.dumps(committed, sort_keys=True)
    # Without the problems whose rows are strided as the population has them, and those of which all kernels were timed, which are harder.
    assert 0 < fit_times(find_frozen_dir(), read_times(OP, TIMES[:3]), ARCH).held_out.mean < 0.02
    told = found.describe()
    assert "3069 problems, 60 kernels, not for bfloat16" in told and "held out in turn: mean 1.59 %" in told


def test_few_problems_make_a_model_of_few_weights() -> None:
    matrix = np.random.default_rng(1).uniform(0.5, 1.5, (4, 5))
    target = matrix @ np.array([1.0, 0.5, 0.2, 0.1, 0.3])
    assert np.count_nonzero(solve_nonnegative(matrix, target, 2)) <= 2
    assert np.count_nonzero(solve_nonnegative(matrix, target)) > 2


def test_a_model_does_not_have_a_kernel_that_is_far_behind_among_the_fastest() -> None:
    # On ten problems the kernel is the fastest, on three it waits for steps which are nothing there.
    steps = np.append(np.linspace(1.0, 1.3, 10), [2.0, 4.0, 8.0])
    terms = np.stack([np.ones(13), steps], axis=1)
    times, fastest = np.append(np.full(10, 5.0), [60.0, 150.0, 300.0]), np.append(np.full(10, 5.0), [6.0, 6.0, 6.0])
    say = fastest / times
    ignored = solve_nonnegative(terms / times[:, np.newaxis] * say[:, np.newaxis], say)
    shape, heeded = solve_heeding_far(terms[:, np.newaxis], times, fastest)
    assert shape == 0
    assert (terms @ ignored)[10:].min() < 6.0 < (terms @ heeded)[10:].min()


def test_a_fit_finds_the_weights_that_made_the_times(frozen: FrozenOp) -> None:
    frozen = replace(frozen, medians=())
    rows = draw_times(open_surveyed(frozen, make_survey(frozen)), 60, noise=0.0)
    found = fit_survey(frozen, ARCH, rows, FACTS)
    timed = {name for row in rows for name in row["times_us"]}
    assert found["weights"].keys() <= timed and len(found["weights"]) > 3
    core = open_surveyed(frozen, found | {"groups": []})
    for row in rows:
        predicted = predict(core, row)
        for name, us in row["times_us"].items():
            assert name not in found["weights"] or not predicted or predicted[name] == pytest.approx(us, rel=1e-3)
    errors = [e for g in found["groups"] for point in g["points"] for e in point[3:] if e is not None]
    assert errors and max(map(abs, errors)) < 1e-3


def test_a_fit_finds_the_shapes_that_made_the_times(frozen: FrozenOp) -> None:
    frozen = replace(frozen, medians=())
    made = make_survey(frozen)
    clusters = {
        name: {"tile": prior["tile"] | {"M": 2 * prior["tile"]["M"]}, "slots": prior["slots"] / 2.0}
        for name in made["weights"]
        if name.startswith("wgmma") and (prior := frozen.kernels[name].manifest["prior"])
    }
    rows = draw_times(open_surveyed(frozen, made | {"shapes": clusters}), 60, noise=0.0)
    found = fit_survey(frozen, ARCH, rows, FACTS)
    shapes = found["shapes"]
    assert len(shapes) > 3 and shapes == {name: clusters[name] for name in shapes}  # of some, both shapes give the same times
    assert "shapes" not in fit_survey(frozen, ARCH, rows, FACTS, finer=False)


def test_shapes_are_the_priors_and_what_blocks_may_make_of_it(frozen: FrozenOp) -> None:
    interface = frozen.description["interface"]
    shapes = list_shapes(interface, {"tile": {"M": 128, "N": 64}, "slots": 132})
    assert shapes[0] == {"tile": {"M": 128, "N": 64}, "slots": 132.0}
    assert {"tile": {"M": 256, "N": 64}, "slots": 66.0} in shapes and {"tile": {"M": 128, "N": 64}, "slots": 33.0} in shapes
    assert {"tile": {"M": 256, "N": 64}, "least": {"M": 128}, "slots": 132.0} in shapes
    assert not any("idle_us" in shape for shape in shapes)
    dealt = list_shapes(interface, {"tile": {"M": 128, "N": 64, "K": 512}, "slots": 132})
    assert dealt[0]["tile"] == {"M": 128, "N": 64, "K": 512} and {"tile": {"M": 128, "N": 64}, "slots": 132.0, "idle_us": 4.0} in dealt
    assert list_shapes(interface, {"tile": {}, "slots": 132}) == [{"tile": {}, "slots": 132.0}]


def test_a_survey_without_the_later_terms_predicts_what_it_did(frozen: FrozenOp) -> None:
    made = make_survey(frozen)
    longer = made | {"weights": {name: [*weights, 0.0, 0.0] for name, weights in made["weights"].items()}}
    cores = [open_surveyed(frozen, survey) for survey in (made, longer)]
    for row in draw_times(cores[0], 5, noise=0.0):
        assert predict(cores[0], row) == predict(cores[1], row)


def test_rows_that_begin_off_the_lines_of_memory_cost_more(frozen: FrozenOp) -> None:
    core = open_core(frozen, ARCH)
    kernel = next(i for i, name in enumerate(core.table.kernels) if name.startswith("wgmma"))
    sizes = {"M": 512, "N": 1024, "K": 1024}

    def find_terms(stride: int) -> list[float]:
        query = core.interface.make_query(Problem(sizes, BFLOAT16, {"a": stride}))
        return core.find_terms(core.ask(query), kernel)

    on, half, off, far = (find_terms(1024 + more) for more in (0, 32, 8, 1))
    assert on[5] == 0.0 < half[5] and off[5] == pytest.approx(7 * half[5]) and far[5] == pytest.approx(15 * half[5])
    assert on[:5] == half[:5] == off[:5]


def test_times_of_bfloat16_speak_for_float16_but_not_for_float32(frozen: FrozenOp) -> None:
    frozen = replace(frozen, medians=())
    drawn = draw_times(open_surveyed(frozen, make_survey(frozen)), 12, noise=0.3)

    def give(row: dict[str, Any], dtype: str) -> dict[str, Any]:
        return {**row, "attributes": row["attributes"] | {"dtype": dtype}}

    half = [*drawn[:-4], give(drawn[-4], "float16")]
    lanes = dict.fromkeys((name for name in frozen.kernels if name.startswith("pipelined")), 9.0)
    ieee = [give(row, "float32") | {"times_us": lanes} for row in drawn[-3:]]
    found = fit_survey(frozen, ARCH, [*half, *ieee], FACTS)
    assert {group["group"] for group in found["groups"]} == {"bfloat16+float16/nk_whole", "float32/nk_whole"}
    core = open_surveyed(frozen, found)
    for row in half[:3]:
        known = [k for k in row["times_us"] if k in found["weights"]]
        twin = predict(core, give(row, "float16"))
        assert known and all(twin[k] == pytest.approx(row["times_us"][k], rel=1e-3) for k in known)


def test_medians_are_points_of_a_survey_that_is_not_fitted_to_them(frozen: FrozenOp) -> None:
    plain = replace(frozen, medians=())
    rows = draw_times(open_surveyed(plain, make_survey(plain)), 60, noise=0.0)
    without, found = fit_survey(plain, ARCH, rows, FACTS), fit_survey(frozen, ARCH, rows, FACTS)
    assert found["weights"] == without["weights"]
    median = next(m for m in frozen.medians if m["kernel"] in found["weights"])
    core = open_surveyed(frozen, found | {"groups": []})
    modelled = core.find_terms(ask(core, median), core.table.kernels.index(median["kernel"]))
    us = sum(w * term for w, term in zip(found["weights"][median["kernel"]], modelled, strict=False))
    classes = core.table.names.axes.list_survey_classes(core.find_classes(ask(core, median)))
    group = next(g for g in found["groups"] if all(map(contains, split_survey_group(g["group"]), classes)))
    sizes = [median["sizes"][s] for s in "KMN"]
    told = [p[3 + group["kernels"].index(median["kernel"])] for p in group["points"] if p[:3] == sizes]
    assert any(e == pytest.approx(median["median_us"] / us - 1.0, abs=1e-4) for e in told if e is not None)


def test_medians_of_another_gpu_are_no_points_of_a_survey(frozen: FrozenOp) -> None:
    rows = draw_times(open_surveyed(frozen, make_survey(frozen)), 20, noise=0.0)
    elsewhere = fit_survey(frozen, ARCH, rows, FACTS | {"device": "another GPU"})
    assert elsewhere["groups"] == fit_survey(replace(frozen, medians=()), ARCH, rows, FACTS)["groups"]
    assert elsewhere["groups"] != fit_survey(frozen, ARCH, rows, FACTS)["groups"]


def test_choices_are_judged_on_problems_that_were_held_out(frozen: FrozenOp) -> None:
    frozen = replace(frozen, medians=())  # those of a GPU contradict times that are made up
    rows = draw_times(open_surveyed(frozen, make_survey(frozen, find_rivals(frozen))), 80, noise=0.0)
    assert cross_validate(Measured(frozen, ARCH, rows, DEVICE)).mean() < 0.002
    generator = random.Random(2)
    for row in rows:  # a liar: times that say nothing of sizes
        row["times_us"] = {name: generator.uniform(1, 3) for name in row["times_us"]}
    assert cross_validate(Measured(frozen, ARCH, rows, DEVICE)).mean() > 0.1


def test_the_least_squares_have_no_weight_below_0() -> None:
    generator = np.random.default_rng(3)
    for _ in range(20):
        matrix, target = generator.uniform(0, 1, (12, 4)), generator.uniform(-1, 1, 12)
        found = solve_nonnegative(matrix, target)
        error = np.sum((matrix @ found - target) ** 2)
        assert (found >= 0).all()
        for _ in range(200):
            other = np.maximum(found + generator.normal(0, 0.1, 4), 0.0)
            assert np.sum((matrix @ other - target) ** 2) >= error - 1e-12


def test_problems_of_an_attribute_that_came_later_count_where_it_has_its_default() -> None:
    times, frozen = read_times(OP, [TIMES[3]]), read_op(OP)
    found = give_to_frozen(times, frozen)
    assert len(found.rows) == len(times.rows) == 170
    assert found.rows[0]["attributes"].keys() == {a["name"] for a in frozen.interface["attributes"]}
    dropped = {**times.rows[0], "attributes": times.rows[0]["attributes"] | {"unheard": 1}}
    assert give_to_frozen(replace(times, rows=(dropped,)), frozen).rows == ()


def test_a_survey_comes_and_goes_with_the_history(tmp_path: Path) -> None:
    op, folder = "reduce", tmp_path / "frozen"
    shutil.copytree(find_frozen_dir() / op, folder / op, ignore=shutil.ignore_patterns(".*"))
    document = json.loads((find_folder() / "h200-survey-reduce.json").read_text())
    shorter = tmp_path / "shorter.json"
    shorter.write_text(json.dumps(document | {"rows": document["rows"][:30]}))
    found = adopt_survey(folder, read_times(op, [shorter]), ARCH)
    assert found.num_problems == 30 and "30 problems" in found.describe()
    assert not check_op(folder, op)
    (survey,) = [r for r in read_frozen_op(folder, op).rows if r["kind"] == "survey"]
    assert survey == found.survey and survey["record"].startswith("shorter.json (")
    with pytest.raises(FrozenError, match="nothing in the frozen set of reduce would change"):
        adopt_survey(folder, read_times(op, [shorter]), ARCH)
    demote(folder, op, [], "all of it")
    assert not [r for r in read_frozen_op(folder, op).rows if r["kind"] == "survey"]
    assert not check_op(folder, op)


def test_files_that_are_no_times_of_the_op_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FrozenUseError, match=r"must be times of softmax on one GPU; they are of gemm_bias_act on NVIDIA H200"):
        read_times("softmax", TIMES)
    other = tmp_path / "other.json"
    other.write_text(json.dumps(json.loads(TIMES[0].read_text()) | {"facts": {"device": "another GPU"}}))
    with pytest.raises(FrozenUseError, match=r"they are of gemm_bias_act on NVIDIA H200, another GPU"):
        read_times(OP, [*TIMES, other])
    for text in ("{}", "[]", "no JSON", '{"op": "gemm_bias_act", "facts": {"device": "d"}, "rows": [{}]}'):
        other.write_text(text)
        with pytest.raises(FrozenUseError, match=r"other.json: cannot be read as times of a survey"):
            read_times(OP, [other])
    with pytest.raises(FrozenUseError, match=r"nowhere.json: cannot be read"):
        read_times(OP, [tmp_path / "nowhere.json"])


def test_an_op_without_a_cost_cannot_be_surveyed(frozen: FrozenOp) -> None:
    with pytest.raises(FrozenUseError, match=r"gemm_bias_act declares no cost"):
        fit_survey(replace(frozen, description={**frozen.description, "cost": None}), ARCH, [], FACTS)


def test_nothing_timed_is_nothing_judged() -> None:
    with pytest.raises(FrozenUseError, match="no problem was timed"):
        Summary.of([])
    found = Summary.of([0.0, 0.5])
    assert (found.problems, found.mean, found.max, found.best_chosen) == (2, 0.25, 0.5, 1)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["fit", OP], 2, "survey fit needs files of times"),
        (["fit", OP, "nowhere.json"], 2, "nowhere.json: cannot be read"),
        (["fit", "softmax", str(TIMES[0])], 2, "must be times of softmax on one GPU"),
        (["recorded", OP, "--seed", "3"], 2, "--seed is not an option of survey recorded (its options: OP, --arch, --out)"),
        (["report", OP], 2, "OP is not an option of survey report (its options: none)"),
        (["regret"], 2, f"survey regret needs an op: one of {', '.join(list_ops(find_frozen_dir()))}"),
        (["measure", "no_such_op"], 2, "no_such_op"),
        (["measure", OP, "--where", "rows=3"], 2, "--where rows=3: name=value, of the sizes"),
        (["measure", OP, "--where", "M=few"], 2, "--where M=few: a number, or least..most"),
        (["regret", OP, "--where", "dtype=int8"], 2, "--where dtype=int8: dtype is one of"),
        (["fit", OP, "--where", "M=3"], 2, "--where is not an option of survey fit"),
    ],
)
def test_wrong_use_of_the_verb_is_one_message(words: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = CliRunner().invoke(build_app(["survey"]), ["survey", *words])
    assert done.exit_code == code and message in done.output + capsys.readouterr().err


def test_the_verb_fits_and_writes_nothing() -> None:
    index = find_frozen_dir() / "reduce" / "index.jsonl"
    before = index.read_bytes()
    done = CliRunner().invoke(build_app(["survey"]), ["survey", "fit", "reduce", str(find_folder() / "h200-survey-reduce.json")])
    assert done.exit_code == 0 and "35 problems, 10 kernels, not for float32" in done.output
    assert "held out in turn: mean 2.03 %" in done.output
    assert index.read_bytes() == before


def test_a_fallback_has_no_model(frozen: FrozenOp) -> None:
    plain = replace(frozen, medians=())
    rows = draw_times(open_surveyed(plain, make_survey(plain)), 60, noise=0.0)
    fallbacks = {e["kernel"] for e in plain.entries} - find_rivals(plain)
    timed = {name for row in rows for name in row["times_us"]}
    assert fallbacks & timed and not fallbacks & fit_survey(plain, ARCH, rows, FACTS)["weights"].keys()


def read_rows(op: str, *files: str) -> tuple[FrozenOp, Times]:
    frozen = read_op(op)
    return frozen, give_to_frozen(read_times(op, [find_folder() / name for name in files]), frozen)


def test_winners_that_were_not_timed_at_home_can_be_left_out() -> None:
    frozen, times = read_rows("rmsnorm_backward", "h200-drawn-rmsnorm_backward.json")
    of_all, at_home = (fit_survey(frozen, ARCH, times.rows, FACTS, at_home=h)["weights"].keys() for h in (False, True))
    assert at_home < of_all


def test_plain_models_have_five_terms_and_the_shapes_of_the_priors() -> None:
    frozen, times = read_rows("softmax", "h200-survey-softmax.json")
    plain, finer = (fit_survey(frozen, ARCH, times.rows, FACTS, finer=f) for f in (False, True))
    assert "shapes" not in plain and all(len(w) == 5 for w in plain["weights"].values())
    assert "shapes" in finer and any(len(w) == 7 for w in finer["weights"].values())


def test_a_bucket_stays_apart_where_its_calls_are_decided_better_without_a_survey() -> None:
    frozen, times = read_rows("rmsnorm", "h200-survey-rmsnorm.json", "h200-survey-rmsnorm-2.json")
    found = fit_times(find_frozen_dir(), times, ARCH)
    bare, core = (open_core(replace(frozen, surveys=surveys), ARCH) for surveys in ({}, {ARCH: found.survey}))
    without = judge(bare, times.rows)
    kinds = [{"at_home": h, "finer": f} for h in (False, True) for f in (False, True)]
    measured = Measured(frozen, ARCH, times.rows, times.device)
    regrets = [np.nanmean(cross_validate(measured, **kind)) for kind in kinds]
    assert found.held_out.mean <= np.nanmean(without) and found.held_out.mean < min(regrets)
    ways = set()
    for row in times.rows:
        is_apart = core.table.names.axes.name_apart(core.find_classes(ask(core, row))) in found.survey["apart"]
        ways.add((is_apart, choose(core, row)[1] is How.SURVEYED))
        assert not is_apart or choose(core, row) == choose(bare, row)
    assert (True, True) not in ways and {(True, False), (False, True)} <= ways
