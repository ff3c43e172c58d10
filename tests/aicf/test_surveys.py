"""Surveys: models are found again from the times that they make, choices by them are good, and lines that are off are refused by name."""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aicf.errors import FrozenError
from aicf.kernels.native import load_extension
from aicf.registry import How, HwCaps, Problem, Registry, explain
from aicf.registry.surveys import _SOURCE
from contract.frozen_set import FrozenOp
from contract.layout import find_frozen_dir
from harness.freezing.store.changes import demote
from harness.freezing.store.index import read_frozen_op
from harness.freezing.store.verify import check_op

FOLDER = Path(__file__).resolve().parents[2] / "profiles" / "selection"
HOPPER = HwCaps(9, 0)
OP = "gemm_bias_act"
BFLOAT16 = {"dtype": "bfloat16", "b_layout": "nk", "act": "silu", "with_bias": True}


@pytest.fixture(autouse=True)
def surveying(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(FOLDER))
    import surveying

    yield surveying
    sys.modules.pop("surveying", None)


@pytest.fixture
def frozen() -> FrozenOp:
    """The project's kernels without a survey."""
    return replace(Registry().read(OP).frozen, surveys={})


def draw_times(registry: Registry, count: int, noise: float) -> list[dict[str, Any]]:
    """Problems with times that the registry's own survey predicts, off by up to a share."""
    generator = random.Random(5)
    tables = registry.find_tables(OP, HOPPER)
    assert tables.survey is not None
    rows = []
    for _ in range(count):
        problem = Problem({s: 8 * int(2 ** generator.uniform(3, 10)) for s in "KMN"}, BFLOAT16)
        query = tables.interface.make_query(problem)
        legal = tables.find_legal(query)
        us = dict(zip(tables.survey.places, tables.survey.predict_us(query, ("none", "none")), strict=True))
        times = {tables.kernels[i].name: t * (1 + generator.uniform(-noise, noise)) for i, t in us.items() if legal >> i & 1}
        rows.append({"sizes": dict(problem.sizes), "attributes": dict(query.attributes), "times_us": times})
    return rows


def make_survey(frozen: FrozenOp) -> dict[str, Any]:
    """A survey whose weights are made up and which no problem sets right."""
    generator = random.Random(1)
    names = [name for name, kernel in frozen.kernels.items() if kernel.arch == "sm_90a"]
    weights = {name: [generator.uniform(2, 9), generator.uniform(0.1, 2), 1.1, generator.uniform(0.5, 1.5), 0.0] for name in names}
    return {"kind": "survey", "arch": "sm_90a", "device": "made up", "record": "none", "weights": weights, "groups": []}


def test_a_fit_finds_the_weights_that_made_the_times(frozen: FrozenOp, surveying: Any) -> None:
    frozen = replace(frozen, medians=())
    made = make_survey(frozen)
    rows = draw_times(Registry.holding(replace(frozen, surveys={"sm_90a": made})), 60, noise=0.0)
    found = surveying.fit(frozen, "sm_90a", rows, {"device": "made up", "record": "none"})
    timed = {name for row in rows for name in row["times_us"]}
    assert found["weights"].keys() <= timed and len(found["weights"]) > 3
    for name, weights in found["weights"].items():
        for row in rows:
            if name in row["times_us"]:
                query = Registry.holding(frozen).find_tables(OP, HOPPER).interface.make_query(Problem(row["sizes"], row["attributes"]))
                registry = Registry.holding(replace(frozen, surveys={"sm_90a": found | {"weights": {name: weights}, "groups": []}}))
                survey = registry.find_tables(OP, HOPPER).survey
                assert survey is not None and survey.predict_us(query, (None, None))[0] == pytest.approx(row["times_us"][name], rel=1e-3)
                break
    errors = [e for g in found["groups"] for point in g["points"] for e in point[3:] if e is not None]
    assert errors and max(map(abs, errors)) < 1e-3


def test_medians_are_points_of_a_survey_that_is_not_fitted_to_them(frozen: FrozenOp, surveying: Any) -> None:
    plain = replace(frozen, medians=())
    rows = draw_times(Registry.holding(replace(plain, surveys={"sm_90a": make_survey(plain)})), 60, noise=0.0)
    facts = {"device": "made up", "record": "none"}
    without, found = surveying.fit(plain, "sm_90a", rows, facts), surveying.fit(frozen, "sm_90a", rows, facts)
    assert found["weights"] == without["weights"]
    median = next(m for m in frozen.medians if m["kernel"] in found["weights"])
    holding = Registry.holding(replace(frozen, surveys={"sm_90a": found | {"groups": []}}))
    tables = holding.find_tables(OP, HOPPER)
    query = tables.interface.make_query(Problem(median["sizes"], median["attributes"]))
    assert tables.survey is not None
    names = [tables.kernels[i].name for i in tables.survey.places]
    modelled = dict(zip(names, tables.survey.predict_us(query, (None, None)), strict=True))[median["kernel"]]
    name = "/".join(map(str, tables.find_classes(query)[:2]))
    group = next(g for g in found["groups"] if g["group"] == name)
    told = [p[3 + group["kernels"].index(median["kernel"])] for p in group["points"] if p[:3] == list(query.sizes)]
    assert any(e == pytest.approx(median["median_us"] / modelled - 1.0, abs=1e-4) for e in told if e is not None)


def test_another_activation_gets_what_was_the_fastest_at_its_sizes() -> None:
    attributes = {"act": "gelu_tanh", "b_layout": "nk", "dtype": "bfloat16", "with_bias": True}
    registry, sizes = Registry(), {"M": 128, "N": 4096, "K": 4096}
    measured = registry.select(OP, Problem(sizes, attributes), HOPPER)
    surveyed = registry.select(OP, Problem(sizes, attributes | {"act": "silu"}), HOPPER)
    assert (measured.how, surveyed.how) == (How.MEASURED, How.SURVEYED) and surveyed.kernel == measured.kernel


def test_choices_are_judged_on_problems_that_were_held_out(frozen: FrozenOp, surveying: Any) -> None:
    rows = draw_times(Registry.holding(replace(frozen, surveys={"sm_90a": make_survey(frozen)})), 80, noise=0.0)
    assert surveying.cross_validate(frozen, "sm_90a", rows).mean() < 0.002
    generator = random.Random(2)
    for row in rows:  # a liar: times that say nothing of sizes
        row["times_us"] = {name: generator.uniform(1, 3) for name in row["times_us"]}
    assert surveying.cross_validate(frozen, "sm_90a", rows).mean() > 0.1


def test_the_least_squares_have_no_weight_below_0(surveying: Any) -> None:
    generator = np.random.default_rng(3)
    for _ in range(20):
        matrix, target = generator.uniform(0, 1, (12, 4)), generator.uniform(-1, 1, 12)
        found = surveying.solve(matrix, target)
        error = np.sum((matrix @ found - target) ** 2)
        assert (found >= 0).all()
        for _ in range(200):
            other = np.maximum(found + generator.normal(0, 0.1, 4), 0.0)
            assert np.sum((matrix @ other - target) ** 2) >= error - 1e-12


def test_a_near_problem_sets_the_model_right(frozen: FrozenOp) -> None:
    survey = make_survey(frozen)
    call = Problem({"M": 640, "N": 4000, "K": 4096}, BFLOAT16)
    first = Registry.holding(replace(frozen, surveys={"sm_90a": survey})).select(OP, call, HOPPER)
    assert first.how is How.SURVEYED and first.predicted_us is not None
    group = {"group": "bfloat16/nk_whole", "kernels": [first.kernel], "points": [[4096, 640, 4000, 3.0]]}
    second = Registry.holding(replace(frozen, surveys={"sm_90a": survey | {"groups": [group]}})).select(OP, call, HOPPER)
    assert second.kernel != first.kernel
    told = explain(OP, call, HOPPER, registry=Registry.holding(replace(frozen, surveys={"sm_90a": survey | {"groups": [group]}})))
    times = {c.kernel: c.survey_us for c in told.candidates}
    say = 0.3**-2
    assert times[first.kernel] == pytest.approx(first.predicted_us * (1 + 3.0 * say / (1 + say)))
    assert f"predicted to take {times[first.kernel]:.4g} us" in {c.kernel: c.dropped for c in told.candidates}[first.kernel]


def test_a_bucket_whose_winner_is_not_surveyed_is_decided_without_the_survey(frozen: FrozenOp) -> None:
    call = Problem({"M": 640, "N": 4000, "K": 4096}, BFLOAT16)
    survey = make_survey(frozen)
    tables = Registry.holding(frozen).find_tables(OP, HOPPER)
    (winner,) = tables.bucket_winners[tables.find_classes(tables.interface.make_query(call))]
    name = tables.kernels[winner].name
    del survey["weights"][name]
    assert Registry.holding(replace(frozen, surveys={"sm_90a": survey})).select(OP, call, HOPPER).how is not How.SURVEYED
    kept = tuple(e for e in frozen.entries if e["kernel"] != name)
    without = replace(frozen, entries=kept, surveys={"sm_90a": survey})
    assert Registry.holding(without).select(OP, call, HOPPER).how is How.SURVEYED


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r["weights"].update({next(iter(r["weights"])): [1.0]}), r"weights/.*is too short"),
        (lambda r: r["weights"].update({next(iter(r["weights"])): [-1.0, 0, 0, 0, 0]}), r"weights/.*less than the minimum of 0"),
        (lambda r: r["groups"][0]["points"][0].pop(), r"survey: group .*: points must be lists of numbers of one length"),
        (lambda r: [p.pop() for p in r["groups"][0]["points"]], r"survey: group .*: a point has 3 sizes and an error by kernel"),
        (lambda r: r["groups"][0]["points"][0].__setitem__(0, 0), r"survey: group .*: a point has 3 sizes"),
        (lambda r: r["groups"][0]["points"][0].__setitem__(4, "x"), r"groups/0/points/0/4: 'x' is not of type 'number'"),
        (lambda r: r.pop("record"), r"'record' is a required property"),
    ],
)
def test_a_survey_that_is_off_is_refused_by_name(tmp_path: Path, change: Callable[[dict[str, Any]], Any], message: str) -> None:
    folder = copy_frozen(tmp_path)
    index = folder / OP / "index.jsonl"
    rows = [json.loads(line) for line in index.read_text().splitlines()]
    change(next(r for r in rows if r["kind"] == "survey"))
    index.write_text("".join(json.dumps(r) + "\n" for r in rows))
    with pytest.raises(FrozenError, match=message):
        Registry(folder).select(OP, Problem({"M": 640, "N": 4000, "K": 4096}, BFLOAT16), HOPPER)


def copy_frozen(tmp_path: Path) -> Path:
    folder = tmp_path / "frozen"
    shutil.copytree(find_frozen_dir(), folder, ignore=shutil.ignore_patterns(".*"))
    return folder


def test_a_survey_comes_and_goes_with_the_history(tmp_path: Path, surveying: Any) -> None:
    folder = copy_frozen(tmp_path)
    (path,) = FOLDER.glob(f"h200-survey-{OP}.json")
    document = json.loads(path.read_text())
    shorter = tmp_path / "shorter.json"
    shorter.write_text(json.dumps(document | {"rows": document["rows"][:120]}))
    assert "120 problems" in surveying.adopt(folder, OP, [shorter], "sm_90a")
    assert not check_op(folder, OP)
    (survey,) = [r for r in read_frozen_op(folder, OP).rows if r["kind"] == "survey"]
    assert survey["record"].startswith("shorter.json (")
    demote(folder, OP, [], "all of it")
    assert not [r for r in read_frozen_op(folder, OP).rows if r["kind"] == "survey"]
    assert not check_op(folder, OP)
    with pytest.raises(SystemExit, match="must be times of softmax on one GPU"):
        surveying.adopt(folder, "softmax", [shorter], "sm_90a")


def test_what_the_extension_cannot_take_is_refused() -> None:
    predictor = load_extension(_SOURCE).Predictor
    one = np.ones(1)
    with pytest.raises(ValueError, match="there may be 1 to 8 and 1 to 64"):
        predictor(9, 1, np.ones(9, np.int64), one, one, 1.0, np.ones(5))
    with pytest.raises(ValueError, match="weights: 8 bytes, must be 5 numbers"):
        predictor(1, 1, np.ones(1, np.int64), one, one, 1.0, one)
    made = predictor(1, 1, np.ones(1, np.int64), one, one, 1.0, np.ones(5))
    with pytest.raises(IndexError, match="setting 0: there are 0"):
        made.predict((1,), 1.0, 1.0, (), 0, -1)
    assert made.add_setting(one, np.zeros(1, np.uint64)) == 0
    with pytest.raises(ValueError, match="reads: 0 numbers, must be 1"):
        made.predict((1,), 1.0, 1.0, (), 0, -1)
    with pytest.raises(ValueError, match="sizes must be at least 1"):
        made.predict((0,), 1.0, 1.0, (1.0,), 0, -1)
    with pytest.raises(ValueError, match="the former of 1 numbers"):
        made.predict((1, 2), 1.0, 1.0, (1.0,), 0, -1)
    with pytest.raises(ValueError, match="errors: 8 bytes, must be 2 numbers"):
        made.add_group(2, np.ones(2), one)
