"""Attentions: heads are found by shape inference, widened, separated and pruned as a whole, with all state."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.rewrite import Deepen, Freeze, InsertNorm, Prune, Release, RewriteError, Rule, Run, Separate, SetBatch, Split, Widen
from device import Device
from tests.aicf.rewrite.test_sequences import apply_all
from tests.aicf.rewrite.test_widen import to_float64

RNG = np.random.default_rng(0)
ROWS, LENGTH, FEATURES, HEAD = 3, 5, 6, 4
BATCHES = [(RNG.normal(size=(ROWS, LENGTH, FEATURES)), RNG.normal(size=(ROWS, LENGTH, 2))) for _ in range(8)]


class Attention(nn.Module):
    """Self-attention with heads of four features, however many there are; ``is_packed`` makes queries, keys and values by one layer."""

    def __init__(self, heads: int, *, is_packed: bool = False) -> None:
        units = heads * HEAD
        self.made = nn.Linear(FEATURES, 3 * units) if is_packed else nn.ModuleList(*(nn.Linear(FEATURES, units) for _ in range(3)))
        self.gain = nn.Parameter(np.linspace(0.5, 1.5, heads, dtype=np.float32))
        self.out = nn.Linear(heads * HEAD, FEATURES)
        self.head = nn.Linear(FEATURES, 2)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, _ = x.shape
        if isinstance(self.made, nn.Linear):
            packed = self.made(x).reshape(rows, length, 3, -1, HEAD).permute(2, 0, 3, 1, 4)
            q, k, v = (packed[i] for i in range(3))
        else:
            q, k, v = (each(x).reshape(rows, length, -1, HEAD).permute(0, 2, 1, 3) for each in self.made)
        scores = (q @ k.permute(0, 1, 3, 2)) * (1.0 / math.sqrt(HEAD))
        mixed = (F.softmax(scores, -1) @ v).permute(0, 2, 1, 3) * self.gain.reshape(-1, 1)
        return self.head(x + self.out(mixed.reshape(rows, length, -1)))


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(model(x), y)


def start(*, is_packed: bool = False, in_float64: bool = True) -> Run:
    aicf.manual_seed(1)
    model: nn.Module = Attention(3, is_packed=is_packed)
    model = to_float64(model) if in_float64 else model
    optimizer = optim.AdamW(model.parameters(), lr=1e-2, eps=1e-8, weight_decay=0.1)
    batch = [Tensor(a if in_float64 else a.astype(np.float32)) for a in BATCHES[0]]
    run = Run(aicf.compile_step(model, loss, optimizer, batch, clip_norm=0.05))
    run.fit(BATCHES if in_float64 else [tuple(a.astype(np.float32) for a in b) for b in BATCHES], 4)
    return run


@pytest.mark.parametrize(("is_packed", "owner"), [(False, "made.0"), (False, "made.2"), (True, "made")])
def test_heads_are_widened_and_training_goes_on_as_it_would_have(is_packed: bool, owner: str) -> None:
    plain, wide = start(is_packed=is_packed), start(is_packed=is_packed)
    before = wide.step.state_dict()
    record = wide.widen(owner, 5, heads=True, seed=2)
    index = np.array(next(m.index for m in record.maps if m.owner == "gain"))
    assert sorted(set(index.tolist())) == [0, 1, 2] and record.delta <= 1e-12
    columns = next(m for m in record.maps if m.owner == "out.weight" and m.dim == 1)
    assert columns.index == tuple(HEAD * h + i for h in index for i in range(HEAD)) and columns.scale_p is not None
    weight = wide.step.tensors["out.weight", "parameter"].numpy()
    share = (1.0 / np.bincount(index))[index]
    old = before["parameter:out.weight"].reshape(FEATURES, 3, HEAD)
    np.testing.assert_array_equal(weight.reshape(FEATURES, 5, HEAD), old[:, index] * share[:, None])
    one, two = np.array(plain.fit(BATCHES, 50)), np.array(wide.fit(BATCHES, 50))
    assert np.abs(one / two - 1.0).max() <= 1e-10
    assert wide.step.verify_replay(1)


def test_a_widening_of_heads_is_taken_back_without_a_trace() -> None:
    run = start()
    before = run.step.state_dict()
    record = run.widen("made.1", 4, heads=True)
    run.undo(record)
    after = run.step.state_dict()
    assert before.keys() == after.keys() and all(np.array_equal(before[k], after[k]) for k in before)


def test_copies_of_heads_are_separated_released_and_pruned() -> None:
    run = start()
    run.widen("made.0", 6, heads=True)
    y = np.array(run.model(Tensor(BATCHES[0][0])).numpy())
    assert run.separate("made.0", 0.5, heads=True, seed=3).delta <= 1e-12
    columns = run.step.tensors["out.weight", "parameter"].numpy().reshape(FEATURES, 6, HEAD)
    index = np.array(next(m.index for m in run.records[0].maps if m.owner == "gain"))
    for h in range(3):
        members = np.flatnonzero(index == h)
        assert len(members) == 2 and np.abs(columns[:, members[0]] - columns[:, members[1]]).min() > 0.0
    run.release("made.0", heads=True)
    assert not any("_scale:" in key for key in run.step.state_dict())
    kept = {key: np.array(a) for key, a in run.step.state_dict().items()}
    record = run.prune("made.0", [0, 4], heads=True)
    assert not record.preserves and record.delta > 0.0
    np.testing.assert_array_equal(
        run.step.tensors["made.1.weight", "exp_avg_sq"].numpy().reshape(4, HEAD, -1),
        kept["exp_avg_sq:made.1.weight"].reshape(6, HEAD, -1)[[1, 2, 3, 5]],
    )
    assert run.model(Tensor(BATCHES[0][0])).shape == y.shape and np.isfinite(run.fit(BATCHES, 3)).all()


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (Widen("made.0", 24), r"is reshaped to 3 x 4; heads=True changes whole heads"),
        (Widen("out", 9, heads=True), "is not reshaped to heads"),
        (Widen("made.0", 3, heads=True), "has 3 units"),
        (Prune("made.0", (3,), heads=True), "numbers from 0 to 2"),
    ],
)
def test_what_is_no_head_is_refused_and_nothing_changes(rule: Widen | Prune, why: str) -> None:
    run = start()
    step, before = run.step, run.step.state_dict()
    with pytest.raises(RewriteError, match=why):
        run.apply(rule)
    assert run.step is step and all(np.array_equal(before[k], v) for k, v in step.state_dict().items())


ANY_RULE = st.one_of(
    st.builds(Widen, st.sampled_from(["made.0", "made.2"]), st.integers(2, 7), st.integers(0, 9), st.just(True)),
    st.builds(Prune, st.sampled_from(["made.0", "made.1"]), st.tuples(st.integers(0, 3)), st.just(True)),
    st.builds(Separate, st.just("made.1"), st.just(0.3), st.integers(0, 9), st.just(True)),
    st.builds(Release, st.just("made.0"), st.just(True)),
    st.builds(Deepen, st.sampled_from(["out", "head"]), hidden=st.integers(1, 5)),
    st.builds(InsertNorm, st.sampled_from(["out", "made.0"]), st.sampled_from(["layer", "rms"])),
    st.builds(Split, st.sampled_from(["out", "made.1"]), st.integers(1, 6)),
    st.builds(Freeze, st.sampled_from(["made.0", "gain"])),
    st.builds(SetBatch, st.integers(1, 3)),
)


@pytest.mark.slow
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ANY_RULE, min_size=2, max_size=5))
def test_after_any_rewrites_an_attention_is_whole_and_computes_what_was_promised(device: Device, todo: list[Rule]) -> None:
    x, y = (a.astype(np.float32) for a in BATCHES[0])
    first = [Widen("made.0", 4, 1, heads=True), Prune("made.2", (1,), heads=True)]
    assert apply_all(start(in_float64=False), [*first, *todo], x, y)[:2] == ["Widen", "Prune"]


class Shared(nn.Module):
    """Features that are taken apart in two ways, of which heads would be neither."""

    def __init__(self) -> None:
        self.up, self.down = nn.Linear(6, 12), nn.Linear(12, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.up(x)
        rows, length = x.shape[:2]
        one, two = (h.reshape(rows, length, *shape).reshape(rows, length, 12) for shape in ((3, 4), (2, 6)))
        return self.down(one + two)


def test_features_that_are_reshaped_in_two_ways_do_not_change() -> None:
    aicf.manual_seed(1)
    model = Shared()
    batch = [Tensor(a.astype(np.float32)) for a in BATCHES[0]]
    run = Run(aicf.compile_step(model, loss, optim.Adam(model.parameters(), 1e-3), batch))
    for heads in (False, True):
        with pytest.raises(RewriteError, match=r"is reshaped to \[3, 4\] and to \[2, 6\]"):
            run.widen("up", 24, heads=heads)
