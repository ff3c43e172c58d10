"""Files of plans and runs that were broken on purpose: each is read, or refused with an error of its reader's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import aicf
from aicf import Tensor, nn, optim
from aicf import functional as F
from aicf.errors import PlanError, StateError
from aicf.plan import load_plan, verify
from aicf.rewrite.log import Log, Observation, Statistics
from aicf.rewrite.records import RewriteRecord
from aicf.rewrite.run import Run
from aicf.rewrite.snapshots import Saved
from tests.aicf.rewrite.killed_run import PLANNED, X, Y, start
from tests.freezing.mutations import break_document, mutate_bytes

FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
LOSS = Observation(3, 0.5)
STATISTICS = Statistics(4, 1.0, {"0.weight": 0.1}, {"0": 0.0}, {"0": 1.0}, {"0": (1, 2)}, {"0": ()}, 0.01)


@pytest.fixture(scope="module")
def run() -> Run:
    made = start()
    made.fit([(X[:8], Y[:8])], 2)
    for _, rule in PLANNED[:2]:
        made.apply(rule)
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, run: Run) -> Path:
    folder = tmp_path_factory.mktemp("broken")
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3))
    batch = Tensor(np.zeros((8, 6), np.float32)), Tensor(np.zeros(8, np.int64))
    aicf.compile_step(model, lambda m, x, y: F.cross_entropy(m(x), y), optim.AdamW(model.parameters(), 1e-2), batch).save(folder / "step")
    run.snapshot().save(folder / "run.safetensors")
    return folder


def read_or_refuse(refusal: type[Exception], read: Callable[[], Any]) -> Any:
    """Return what was read, None where it was refused; any other error goes through."""
    try:
        return read()
    except refusal:
        return None


@FUZZ
@given(data=st.data())
def test_a_broken_plan(folder: Path, data: st.DataObject) -> None:
    path = folder / "plan.json"
    path.write_bytes(data.draw(break_document((folder / "step" / "plan.json").read_bytes())))
    read_or_refuse(PlanError, lambda: verify(load_plan(path)))


@FUZZ
@given(data=st.data())
def test_a_broken_log(folder: Path, run: Run, data: st.DataObject) -> None:
    path = folder / "log.jsonl"
    line = data.draw(st.sampled_from([LOSS.to_json(), STATISTICS.to_json(), *run.log.to_lines()]))
    path.write_bytes(data.draw(break_document(line.encode())))
    log = read_or_refuse(ValueError, lambda: Log.read(path))
    assert log is None or Log(log.present).to_lines() is not None


@FUZZ
@given(data=st.data())
def test_a_broken_record(run: Run, data: st.DataObject) -> None:
    line = data.draw(st.sampled_from([record.to_json() for record in run.records]))
    text = data.draw(break_document(line.encode())).decode("utf-8", "surrogateescape")
    record = read_or_refuse(ValueError, lambda: RewriteRecord.from_json(text))
    assert record is None or isinstance(record.to_json(), str)


@FUZZ
@given(data=st.data())
def test_a_broken_snapshot(folder: Path, data: st.DataObject) -> None:
    content = (folder / "run.safetensors").read_bytes()
    size = 8 + int.from_bytes(content[:8], "little")
    path = folder / "broken.safetensors"
    path.write_bytes(data.draw(mutate_bytes(content[:size])) + content[size:])
    read_or_refuse(StateError, lambda: Saved.read(path))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"kind": "observation", "step": "3", "loss": 0.5}', "step: '3' is not of type int"),
        ('{"kind": "observation", "step": 3, "loss": true}', "loss: 'True' is not of type float"),
        ('{"kind": "shapes", "step": 3, "num_bytes": 4, "shapes": {"0.weight": 8}}', "shapes: .* is not of type"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_an_entry_with_a_value_of_another_type_is_named(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(f"{line}\n")
    with pytest.raises(ValueError, match=rf"log\.jsonl:1: .*{words}"):
        Log.read(path)
