"""Structure induction: what features and patterns promise, records are read as they were written, predictions by their formula."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicf import Tensor, nn
from aicf import functional as F
from aicf.rewrite import induce
from aicf.rewrite.induce.model import find_places, to_target
from tests.aicf.frontends.onnx_models import make_mlp

FAST = settings(max_examples=12, deadline=None)
CORPUS = induce.Corpus.read()


def draw_rows(seed: int, rows: int = 48, inputs: int = 3) -> induce.Problem:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, inputs))
    return induce.Problem.of(x, np.sin(2.0 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * rng.normal(size=rows))


# ---- features


@FAST
@given(st.integers(0, 1000), st.integers(0, 1000))
def test_features_do_not_depend_on_the_order_of_rows(seed: int, order: int) -> None:
    problem = draw_rows(seed)
    rows = np.random.default_rng(order).permutation(len(problem.x))
    found = induce.find_features(induce.Problem.of(problem.x[rows], problem.y[rows]))
    assert found == pytest.approx(induce.find_features(problem), abs=1e-6)


@FAST
@given(st.integers(0, 1000), st.lists(st.floats(0.05, 20.0), min_size=4, max_size=4), st.floats(-3.0, 3.0))
def test_features_do_not_depend_on_units(seed: int, scales: list[float], shift: float) -> None:
    problem = draw_rows(seed)
    found = induce.find_features(induce.Problem.of(problem.x.astype(np.float64) * scales[:3] + shift, problem.y * scales[3] - shift))
    assert found == pytest.approx(induce.find_features(problem), abs=5e-3)


@pytest.mark.parametrize(
    ("function", "gain"),
    [
        (lambda x: np.sin(5.0 * x[:, 0]) + np.sin(4.0 * x[:, 1]), "wave_gain"),
        (lambda x: 1.0 * (x[:, 0] > 0.2) - (x[:, 1] > -0.4), "step_gain"),
        (lambda x: x[:, 0] * x[:, 1] - x[:, 1] * x[:, 2], "pair_gain"),
        (lambda x: x[:, 0] * x[:, 1] * x[:, 2], "triple_gain"),
        (lambda x: np.abs(x[:, 0]) - x[:, 1] ** 2, "bend_gain"),
    ],
)
def test_each_gain_stands_out_where_it_belongs(function: Any, gain: str) -> None:
    x = np.random.default_rng(0).uniform(-1.7, 1.7, size=(300, 4))
    line = induce.find_features(induce.Problem.of(x, x @ [1.0, 2.0, 0.0, -1.0]))
    assert induce.find_features(induce.Problem.of(x, function(x)))[gain] > line[gain] + 0.05
    assert line["linear"] > 0.999


def test_features_count_what_matters() -> None:
    x = np.random.default_rng(0).normal(size=(400, 8))
    two = induce.find_features(induce.Problem.of(x, x[:, 0] + x[:, 3]))
    direction = induce.find_features(induce.Problem.of(x, np.tanh(x @ np.ones(8))))
    assert two["relevant_alone"] == pytest.approx(2.0, abs=0.3) and two["relevant"] < 3.0
    assert direction["relevant"] > 6.0 and direction["rank"] < 2.0
    noisy = induce.Problem.of(x[:, :2], x[:, 0] + 2.0 * np.random.default_rng(1).normal(size=400))
    assert induce.find_features(noisy)["noise"] > induce.find_features(induce.Problem.of(x[:, :2], x[:, 0]))["noise"] + 0.5


@pytest.mark.parametrize(
    ("x", "y"), [(np.zeros((20, 2)), np.zeros(19)), (np.zeros((5, 2)), np.zeros(5)), (np.full((20, 2), np.nan), np.zeros(20))]
)
def test_a_problem_that_is_none_is_refused(x: Any, y: Any) -> None:
    with pytest.raises(ValueError, match="problem"):
        induce.Problem.of(x, y)


def test_features_are_finite_where_nothing_varies() -> None:
    found = induce.find_features(induce.Problem.of(np.ones((20, 3)), np.zeros(20, np.int64)))
    assert all(np.isfinite(list(found.values())))


# ---- patterns


class Wrapped(nn.Module):
    """``32 res32relu`` in other modules and under other names."""

    def __init__(self) -> None:
        self.head, self.first, self.up, self.down = nn.Linear(32, 2), nn.Linear(5, 32), nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return self.head(h + self.down(F.relu(self.up(h))))


def test_patterns_are_of_the_graph_and_not_of_modules() -> None:
    written = induce.find_patterns(induce.make_structure("32 res32relu", 9, 1), 9)
    found = induce.find_patterns(Wrapped(), 5)
    assert (found.key, found.values) == (written.key, written.values)
    assert found.parameters == 5 * 32 + 32 + 2 * (32 * 32 + 32) + 32 * 2 + 2
    assert found.flops_per_row == 2 * (5 * 32 + 2 * 32 * 32 + 32 * 2) + 2 * 32


def test_structures_differ_by_their_key_whatever_the_problem() -> None:
    def find(inputs: int, outputs: int) -> list[induce.Patterns]:
        return [induce.find_patterns(induce.make_structure(text, inputs, outputs), inputs) for text in induce.STRUCTURES]

    small, large = find(3, 1), find(7, 4)
    assert [(p.key, p.values) for p in small] == [(p.key, p.values) for p in large]
    assert len({p.key for p in small}) == len(induce.STRUCTURES)


@pytest.mark.parametrize(
    ("structure", "expected"),
    [
        ("16 tanh 32 tanh", {"depth": 3, "widest": 5, "narrowest": 4, "tanh": 2, "linear>tanh": 2}),
        ("32 res32relu", {"residual": 1, "relu": 1, "depth": 4}),
        ("mul16", {"product": 1, "linear>product": 1}),
        ("glu32", {"sigmoid>product": 1}),
        ("32 sin3", {"sin": 1, "sin_scale": np.log2(3.0)}),
        ("each6sin", {"alone": 1, "depth": 1}),
        ("gate 8 relu", {"gate": 1, "input>gate": 1}),
        ("32 norm relu", {"norm": 1}),
        ("skip 32 tanh", {"sum": 1, "depth": 2}),
    ],
)
def test_patterns_of_structures(structure: str, expected: dict[str, float]) -> None:
    values = induce.find_patterns(induce.make_structure(structure, 5, 1), 5).values
    assert {name: values[name] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize("text", ["32 relu what", "res32", "mul16relu", "0", "each8", "32 skip"])
def test_a_word_that_is_no_layer_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a layer"):
        induce.make_structure(text, 4, 1)


# ---- records


def make_record(problem: int, structure: str, loss: float, family: str = "") -> induce.Record:
    patterns = induce.find_patterns(induce.make_structure(structure, 3, 1), 3)
    features = {"a": float(problem), "b": float(problem % 3)}
    return induce.Record(f"p{problem}", family or f"f{problem % 4}", features, structure, patterns, loss, (0.5, 0.25))


def test_a_corpus_is_read_as_it_was_written(tmp_path: Path) -> None:
    corpus = induce.Corpus([make_record(0, "8 relu", 0.25), make_record(1, "8 relu", 0.5), make_record(1, "mul16", 0.125)])
    corpus.add(replace(make_record(1, "mul16", 0.75), structure="net.onnx", is_text=False, seed=3))
    corpus.write(tmp_path / "a.gz")
    read = induce.Corpus.read(tmp_path / "a.gz")
    assert read.records == corpus.records
    assert read.structures.keys() == {r.patterns.key for r in corpus}
    read.write(tmp_path / "b.gz")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_records_that_contradict_are_refused() -> None:
    corpus = induce.Corpus([make_record(0, "8 relu", 0.25)])
    with pytest.raises(ValueError, match="other features"):
        corpus.add(replace(make_record(0, "mul16", 0.25), features={"a": 5.0}))
    with pytest.raises(ValueError, match="not negative"):
        make_record(0, "8 relu", float("nan"))


def test_a_damaged_corpus_is_refused_by_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.gz"
    path.write_bytes(gzip.compress(b'{"kind":"problem","name":"p","family":"f","features":{}}\n{"kind":"run","problem":3}\n'))
    with pytest.raises(ValueError, match=r"bad\.gz:2"):
        induce.Corpus.read(path)


def test_networks_of_onnx_files_are_records(tmp_path: Path) -> None:
    onnx.save(make_mlp(6, 16, 4), tmp_path / "net.onnx")
    x = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, y=np.arange(60) % 4)
    line = {"model": "net.onnx", "data": "data.npz", "loss": 0.7, "family": "theirs", "curve": [1.4, 0.7]}
    (tmp_path / "runs.jsonl").write_text(json.dumps(line) + "\n")
    (record,) = induce.read_records(tmp_path / "runs.jsonl")
    assert record.loss == pytest.approx(0.7 / np.log(4.0)) and record.curve[1] == pytest.approx(record.loss)
    own = induce.find_patterns(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)), 6)
    assert {**record.patterns.values, "depth": 0} == {**own.values, "depth": 0} and record.patterns.parameters == own.parameters
    model = induce.LossModel([*CORPUS.records[:200], record])
    assert np.isfinite(model.predict(record.features, [record.patterns])).all()
    (tmp_path / "runs.jsonl").write_text(json.dumps({**line, "data": "other.npz"}) + "\n")
    with pytest.raises(ValueError, match=r"runs\.jsonl:1"):
        induce.read_records(tmp_path / "runs.jsonl")


# ---- predictions


@FAST
@given(st.integers(0, 1000), st.booleans())
def test_predictions_are_those_of_the_formula_also_where_cells_are_missing(seed: int, is_whole: bool) -> None:
    rng = np.random.default_rng(seed)
    grid = [(p, s) for p in range(7) for s in ("8 relu", "mul16", "32 sin", "") if is_whole or rng.uniform() < 0.7]
    records = [make_record(p, s, float(rng.uniform(0.01, 1.0))) for p, s in [*grid, (7, "8 relu"), (8, "mul16")]]
    model = induce.LossModel(records, induce.Settings(noise=0.2))
    same = np.array([[a.problem == b.problem for b in records] for a in records])
    kernel = np.array([[_covary(model, a, b) for b in records] for a in records]) + same + 0.2 * np.eye(len(records))
    targets = np.array([to_target(r.loss) for r in records])
    new, pattern = {"a": 2.5, "b": 1.0}, records[0].patterns
    at = np.array([_covary(model, replace(records[0], problem="new", features=new), r) for r in records])
    expected = targets.mean() + at @ np.linalg.solve(kernel, targets - targets.mean())
    assert model.predict(new, [pattern])[0] == pytest.approx(expected, abs=1e-6)
    squared = 1.0 / 3.0 + model.weigh(new, pattern) @ (find_places(model.cells) ** 2 - 1.0 / 3.0)
    place = model.predict_places(new, [pattern])[0]
    assert place * abs(place) == pytest.approx(squared, abs=1e-6)
    weighed = targets.mean() + model.weigh(new, pattern) @ (targets - targets.mean())
    assert weighed == pytest.approx(expected, abs=1e-6)


def _covary(model: induce.LossModel, a: induce.Record, b: induce.Record) -> float:
    rows, columns = list(model.problems), list(model.structures)
    problems = model._compare_problems([a.features])[0, rows.index(b.problem)]
    return float(problems * model._compare_structures([a.patterns.values])[0, columns.index(b.patterns.key)])


@FAST
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=12, max_size=60))
def test_the_signed_rank_test_is_scipys(pairs: list[tuple[int, int]]) -> None:
    a, b = ([float(pair[i]) for pair in pairs] for i in (0, 1))
    if a == b:
        assert induce.compare_pairs(a, b) == 1.0
        return
    from scipy import stats  # a second for every process that collects this file

    expected = stats.wilcoxon(a, b, zero_method="wilcox", correction=False, alternative="less", method="asymptotic").pvalue
    assert induce.compare_pairs(a, b) == pytest.approx(expected, rel=1e-9)
