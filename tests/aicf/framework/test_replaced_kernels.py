"""Kernels that cannot be built, or that the device refuses to load: the next one that serves the call takes their place, loudly."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import aicf
from aicf import Tensor, nn
from aicf import functional as F
from aicf.backends import frozen
from aicf.errors import ChainError, LaunchError, SelectionError
from aicf.kernels.library import KernelLibrary
from aicf.opset import find_op
from aicf.registry import Registry
from aicf.registry.selection import BY_TIMES_ALONE
from contract.building import NotBuiltError, without_compiler
from contract.layout import PACKAGED_DIR, expand, make_seal
from device import Device, UnavailableError

X = np.random.default_rng(0).normal(size=(8, 96)).astype(np.float32)


@pytest.fixture(autouse=True)
def opened(device: Device) -> Device:
    return device


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the frozen set's softmax, which is all that programs find."""
    shutil.copytree(PACKAGED_DIR / "softmax", tmp_path / "frozen" / "softmax")
    monkeypatch.setattr(frozen, "open_registry", lambda: Registry(tmp_path / "frozen"))
    frozen.CALLS.clear()
    yield tmp_path / "frozen" / "softmax"
    frozen.CALLS.clear()


def make_program() -> aicf.train.Program:
    return aicf.compile(nn.Softmax(), (Tensor(X, backend="cuda"),), backend="cuda")


def find_chosen() -> str:
    chosen = make_program().plan.steps[0].kernel
    frozen.CALLS.clear()
    return chosen


def break_kernel(folder: Path, name: str) -> None:
    """Seal a kernel anew with a definition under which nothing compiles."""
    path = folder / "kernels" / f"{name}.json"
    manifest = json.loads(path.read_text())
    tree = json.loads((folder / "revisions" / manifest["revision"][:16] / "tree.json").read_text())
    before = manifest["seal"]
    manifest["build"]["flags"].append("-DAICF_OK=+")
    manifest["seal"] = make_seal(expand(manifest, tree))
    path.write_text(json.dumps(manifest))
    index = folder / "index.jsonl"
    index.write_text(index.read_text().replace(before, manifest["seal"]))


def check(program: aicf.train.Program) -> None:
    for _ in range(3):  # stepwise, captured, replayed
        np.testing.assert_allclose(program(X).numpy(), nn.Softmax()(Tensor(X)).numpy(), rtol=1e-5)


@pytest.mark.slow
def test_a_kernel_that_does_not_compile_is_replaced(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    broken = find_chosen()
    break_kernel(folder, broken)
    program = make_program()
    check(program)
    assert program.plan.steps[0].kernel not in ("", broken)
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert warning.startswith(f"softmax/{broken} cannot be used here, and the next kernel that serves the call takes its place: ")
    assert "does not compile" in warning
    (entry,) = [e for e in program.log if e.rule == "select"]
    assert entry.notes[0] == warning
    # Nobody asks for it again, eager calls neither.
    caplog.clear()
    np.testing.assert_allclose(F.softmax(Tensor(X, backend="cuda")).numpy(), program(X).numpy(), rtol=1e-6)
    assert not caplog.records


def test_an_eager_call_takes_the_next_kernel_too(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    break_kernel(folder, find_chosen())
    np.testing.assert_allclose(F.softmax(Tensor(X, backend="cuda")).numpy(), F.softmax(Tensor(X)).numpy(), rtol=1e-5)
    assert len(caplog.records) == 1


def test_a_saved_plan_whose_kernel_does_not_compile_gets_another(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    program = make_program()
    program.save(tmp_path / "program")
    broken = program.plan.steps[0]
    break_kernel(folder, broken.kernel)
    seal = json.loads((folder / "kernels" / f"{broken.kernel}.json").read_text())["seal"]
    plan = tmp_path / "program" / "plan.json"
    plan.write_text(plan.read_text().replace(broken.seal, seal))
    frozen.CALLS.clear()
    loaded = aicf.load(tmp_path / "program")
    assert isinstance(loaded, aicf.train.Program)
    check(loaded)
    assert loaded.plan.steps[0].kernel != broken.kernel
    assert len(caplog.records) == 1


def test_a_kernel_that_the_device_refuses_is_replaced_when_it_runs(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = make_program()
    refused, launch = program.plan.steps[0].kernel, KernelLibrary.launch

    def refuse(self: KernelLibrary, *arguments: object) -> None:
        if refused in self.path.parent.name:
            raise LaunchError(f"{refused}: cudaErrorNoKernelImageForDevice", 209)
        launch(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(KernelLibrary, "launch", refuse)
    check(program)
    assert program.plan.steps[0].kernel != refused
    assert "cudaErrorNoKernelImageForDevice" in caplog.records[0].getMessage()


def test_where_no_kernel_is_left_all_reasons_are_given(folder: Path) -> None:
    call = [Tensor(X).type, None, None, None], find_op("softmax").fill({})
    num_legal = len(frozen.open_calls(deterministic=True).list_seals("softmax", *call))
    frozen.CALLS.clear()
    for path in (folder / "kernels").iterdir():
        break_kernel(folder, path.stem)
    for source in folder.glob("revisions/*/sources/softmax/kernels.cu"):
        source.write_text("")
    with pytest.raises(SelectionError, match=r"it cannot be used here: .* is not what was sealed") as caught:
        F.softmax(Tensor(X, backend="cuda"))
    said = str(caught.value)
    assert said.count("cannot be used here") + said.count(BY_TIMES_ALONE) == num_legal
    assert not re.search(r": $", said, re.MULTILINE)


def test_a_refused_launch_of_another_kind_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: KernelLibrary, *arguments: object) -> None:
        raise LaunchError("softmax: x: is not aligned")

    monkeypatch.setattr(KernelLibrary, "launch", refuse)
    with pytest.raises(LaunchError, match="is not aligned"):
        make_program()(X)


def test_without_a_compiler_fused_chains_fall_apart_into_frozen_ones(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Three(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.relu(x) * x + x

    def refuse(*arguments: object) -> None:
        raise UnavailableError("there is no nvcc")

    monkeypatch.setattr("aicf.registry.handles.compile_chain", refuse)
    program = aicf.compile(Three(), (Tensor(X),), backend="cuda")
    assert [step.kernel.split("__")[1].split("_")[0] for step in program.plan.steps] == ["relu", "mul", "add"]
    np.testing.assert_allclose(program(X).numpy(), np.maximum(X, 0) * X + X, rtol=1e-6)
    (warning,) = [r.getMessage() for r in caplog.records]
    assert warning.startswith("Three: elementwise calls stay apart: the kernel of the chain ") and "there is no nvcc" in warning
    with pytest.raises(ChainError, match="there is no nvcc"):
        aicf.compile(nn.Sequential(Three(), nn.Softmax(), Sine()), (Tensor(X),), backend="cuda")

    def find_none(*arguments: object) -> None:
        raise NotBuiltError("chain is not in the cache")

    monkeypatch.setattr("aicf.registry.handles.compile_chain", find_none)
    with without_compiler():
        assert len(aicf.compile(Three(), (Tensor(X),), backend="cuda").plan.steps) == 3
        with pytest.raises(NotBuiltError, match=r"elementwise/chain__\w+: not in the cache"):
            aicf.compile(nn.Sequential(Three(), nn.Softmax(), Sine()), (Tensor(X),), backend="cuda")


class Sine(nn.Module):
    """What no frozen chain computes."""

    def forward(self, x: Tensor) -> Tensor:
        return F.sin(x)
