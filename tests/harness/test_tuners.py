"""The comparison of tuners: both are given the same space in the same words, and the page is what the published record says."""

from __future__ import annotations

import importlib.util
import itertools
import json
from pathlib import Path
from types import ModuleType

import pytest

from harness.discover import load_op
from harness.sweep.space import list_space

FOLDER = Path(__file__).resolve().parents[2] / "profiles" / "tuning"


@pytest.fixture(scope="module")
def tuners() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tuners", FOLDER / "tuners.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_rules_in_words_are_the_constraints(tuners: ModuleType) -> None:
    (kernel,) = load_op(tuners.FOLDER).kernels
    names = [t.name for t in kernel.tunables]
    bound = [dict(zip(names, row, strict=True)) for row in itertools.product(*(t.values for t in kernel.tunables))]
    allowed = [b for b in bound if all(eval(c.message, {}, dict(b)) for c in kernel.constraints)]
    assert [dict(v.values) for v in list_space(kernel)] == allowed
    assert len(allowed) >= 200


def test_the_page_is_made_of_the_record(tuners: ModuleType) -> None:
    found = json.loads((FOLDER / "h200.json").read_text())
    page = tuners.make_page(found)
    assert page == (FOLDER / "h200.md").read_text()
    assert page.count("| sweep, ") == 12 and found["kernel_tuner"]["configurations"] >= 200
