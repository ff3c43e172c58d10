"""A project's own ops in the framework: their opset files are found as the ops are, and networks of them train."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

import aicf
from aicf import Tensor, nn, opset, optim
from aicf import functional as F
from aicf.errors import OpsetError
from aicf.opset import OpDef, find_op, list_ops, register
from harness.discover import find_description
from harness.discover import find_op as find_harness_op
from harness.projects import create_project
from harness.scaffold import KindName
from tests.installed.pages import DOCS, list_blocks


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    create_project(tmp_path, "mine", KindName.ELEMENTWISE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", list(KindName))
def test_a_new_op_is_known_with_its_reference_meaning_and_a_gradient(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: KindName
) -> None:
    create_project(tmp_path, "mine", kind)
    monkeypatch.chdir(tmp_path / "ops")
    assert "mine" in list_ops() and find_op("mine").is_frozen
    path = tmp_path / "ops" / "mine" / "test_mine.py"
    spec = importlib.util.spec_from_file_location("test_mine", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for problem in find_harness_op("mine").op.select_problems("verify")[:3]:
        module.test_the_framework_means_what_the_reference_does(problem)
    with pytest.raises(ValueError, match=r"mine: act: expected one of relu, none, got 'gelu'"):
        F.call("mine", *(Tensor(np.ones((2, 2)[: 1 + (kind is not KindName.ELEMENTWISE)])) for _ in find_op("mine").inputs), act="gelu")


class Layer(nn.Module):
    """The project's own op, with what it scales and shifts by as parameters."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(np.full(n, 0.5, np.float32))
        self.shift = nn.Parameter(np.ones(n, np.float32))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = F.call("mine", x, self.scale, self.shift, act="none")
        return found


def train(steps: int, *, compiled: bool) -> list[float]:
    rng = np.random.default_rng(3)
    x, y = (Tensor(rng.normal(size=16).astype(np.float32)) for _ in range(2))
    model = Layer(16)
    rule = optim.SGD(model.parameters(), lr=0.5)
    if compiled:
        step = aicf.compile_step(model, lambda m, x, y: F.mse_loss(m(x), y), rule, (x, y))
        return [float(step(x, y)) for _ in range(steps)]
    losses = []
    for _ in range(steps):
        rule.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        rule.step()
        losses.append(float(loss))
    return losses


def test_an_own_op_trains_eagerly_and_compiled_with_the_same_bits(project: Path) -> None:
    eager = train(6, compiled=False)
    assert eager == train(6, compiled=True)
    assert eager[-1] < 0.7 * eager[0]


def test_an_opset_file_is_no_part_of_what_is_sealed(project: Path) -> None:
    folder = project / "ops" / "mine"
    imported = re.findall(r"^(?:from|import) ([\w.]+)", (folder / "opset.py").read_text(), re.MULTILINE)
    assert set(imported) == {"__future__", "typing", "numpy", "aicf.opset"}
    assert find_description(folder) == [folder / "op.py"]
    assert find_op("mine").name == "mine" and not list(project.rglob("__pycache__"))


def test_a_file_that_cannot_be_loaded_is_named_with_its_line_and_stops_nothing_else(project: Path) -> None:
    path = project / "ops" / "mine" / "opset.py"
    path.write_text('"""Words."""\n\nOPS = (wrong,)\n')
    assert find_op("Linear").name == "Linear"
    with pytest.raises(OpsetError, match=r"ops/mine/opset\.py:3: cannot be loaded: NameError: name 'wrong'"):
        find_op("mine")
    path.write_text("OPS = (\n")
    with pytest.raises(OpsetError, match=r"ops/mine/opset\.py:1: cannot be loaded: SyntaxError"):
        find_op("mine")
    path.write_text("OPS = 3\n")
    with pytest.raises(OpsetError, match=r"must bind OPS to a tuple of aicf\.opset\.OpDef"):
        list_ops()


@pytest.mark.parametrize(("name", "told"), [("softmax", "which the framework has already"), ("mine", r"is defined in \S+ already")])
def test_a_name_that_is_taken_is_refused(project: Path, name: str, told: str) -> None:
    other = project / "ops" / "other"
    other.mkdir()
    (other / "opset.py").write_text((project / "ops" / "mine" / "opset.py").read_text().replace('        "mine",', f'        "{name}",'))
    with pytest.raises(OpsetError, match=told):
        list_ops()


def test_the_file_that_the_documentation_shows_is_one(project: Path) -> None:
    (text,) = (text for _, _, text in list_blocks(DOCS / "adding-an-op.md") if text.startswith("from aicf.opset"))
    (project / "ops" / "my_op").mkdir()
    (project / "ops" / "my_op" / "opset.py").write_text(text)
    x, scale = Tensor(np.array([0.5, -1.5])), Tensor(np.array([2.0, 3.0]))
    assert F.call("my_op", x, scale).numpy().tolist() == [1.0, -4.5]
    aicf.gradcheck(lambda x, scale: F.call("my_op", x, scale), [x, scale])


def test_an_op_without_a_file_may_be_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    table = dict(opset._table())
    monkeypatch.setattr(opset, "_table", lambda: table)
    double = OpDef("Double", ("x",), ("y",), lambda types, attrs: (types[0],), lambda arrays, attrs: (2.0 * arrays[0],))
    register(double)
    assert F.call("Double", Tensor([1.5])).numpy() == [3.0]
    with pytest.raises(ValueError, match=r"op Double is defined already"):
        register(OpDef("Double", ("x",), ("y",), double.infer, double.meaning))
