"""A project of one's own: what `init` writes, and that everything is found from the working directory upwards."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest

from aicf.registry import open_registry
from contract.frozen_set import list_ops, read_op
from contract.layout import PACKAGED_DIR, find_frozen_dir, find_frozen_dirs
from device.settings import NoProjectError, SettingError, find_project_root, read_settings
from harness.discover import find_op, find_ops
from harness.errors import UseError
from harness.projects import create_project, update_shared
from harness.scaffold import KindName


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    create_project(tmp_path, "mine", KindName.ELEMENTWISE)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")
    return tmp_path


def test_ops_state_and_frozen_set_are_found_from_below(project: Path) -> None:
    assert find_project_root() == project
    assert find_ops() == {"mine": project / "ops" / "mine"} and find_op("mine").op.name == "mine"
    settings = read_settings({})
    assert settings.cache_dir == project / ".aicf" / "cache" and settings.records_url == f"sqlite:///{project}/.aicf/records.sqlite"
    assert find_frozen_dir() == project / "frozen" and find_frozen_dirs() == (project / "frozen", PACKAGED_DIR)


def test_an_op_is_looked_for_in_the_own_set_first(project: Path) -> None:
    assert read_op("softmax").folder == PACKAGED_DIR / "softmax"
    shutil.copytree(PACKAGED_DIR / "softmax", project / "frozen" / "softmax")
    assert read_op("softmax").folder == project / "frozen" / "softmax"
    assert read_op("transpose").folder == PACKAGED_DIR / "transpose"
    assert list_ops() == list_ops(PACKAGED_DIR) and list_ops(project / "frozen") == ["softmax"]
    open_registry.cache_clear()
    try:
        assert open_registry().read("softmax").frozen.folder == project / "frozen" / "softmax"
    finally:
        open_registry.cache_clear()


def test_the_table_sets_defaults_that_the_environment_goes_before(project: Path) -> None:
    path = project / "pyproject.toml"
    path.write_text(path.read_text().replace("[tool.aicf]\n", '[tool.aicf]\ntarget = "a100"\ndevice = "emulated"\n'))
    assert (read_settings({}).target, read_settings({}).device) == ("a100", "emulated")
    assert read_settings({"AICF_TARGET": "h100"}).target == "h100"


@pytest.mark.parametrize(
    ("line", "told"),
    [('targt = "a100"', "has no key 'targt'; did you mean 'target'?"), ('target = "v100"', "must be one of h200, h100, a100")],
)
def test_a_key_or_value_that_means_nothing_is_refused(project: Path, line: str, told: str) -> None:
    path = project / "pyproject.toml"
    path.write_text(path.read_text().replace("[tool.aicf]\n", f"[tool.aicf]\n{line}\n"))
    with pytest.raises(SettingError) as caught:
        find_project_root()
    assert told in str(caught.value) and str(path) in str(caught.value)


def test_outside_of_any_project_the_state_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("device.settings.PARTS_DIR", tmp_path / "site-packages" / "aicf")
    with pytest.raises(NoProjectError, match=r"run `aicf init`"):
        find_project_root()
    assert read_settings({"HOME": "/h"}).cache_dir == Path("/h/.cache/aicf")
    assert read_settings({"XDG_STATE_HOME": "/s"}).records_url == "sqlite:////s/aicf/records.sqlite"
    assert find_frozen_dirs() == (PACKAGED_DIR,)


def test_what_is_there_stays_and_a_second_time_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n\n[tool.pytest.ini_options]\nminversion = "8"\n')
    (tmp_path / "Makefile").write_text("all:\n")
    written, kept = create_project(tmp_path, "mine", KindName.GEMM)
    table = tomllib.loads((tmp_path / "pyproject.toml").read_text())
    assert table["project"] == {"name": "x"} and table["tool"] == {"pytest": {"ini_options": {"minversion": "8"}}, "aicf": {}}
    assert kept == [tmp_path / "Makefile"] and (tmp_path / "Makefile").read_text() == "all:\n"
    assert tmp_path / "ops" / "mine" in written
    with pytest.raises(UseError, match=r"is a project already"):
        create_project(tmp_path, "other", KindName.GEMM)
    assert not (tmp_path / "ops" / "other").exists()


def test_shared_headers_are_renewed_and_the_projects_own_stay(project: Path) -> None:
    common = project / "ops" / "common"
    (common / "launch.hpp").write_text("// old\n")
    (common / "mine.hpp").write_text("// mine\n")
    assert update_shared(project) == ["launch.hpp"]
    assert (common / "launch.hpp").read_text() != "// old\n" and (common / "mine.hpp").read_text() == "// mine\n"
    assert update_shared(project) == []


@pytest.mark.parametrize("package", ["harness", "aicf.harness"])
def test_an_op_may_name_the_workbench_as_a_checkout_or_as_an_installed_one_does(project: Path, package: str) -> None:
    for path in (project / "ops" / "mine").glob("*.py"):
        path.write_text(path.read_text().replace("from harness.spec", f"from {package}.spec"))
    assert f"from {package}.spec" in (project / "ops" / "mine" / "op.py").read_text()
    assert find_op("mine").op.name == "mine"
    assert not list(project.rglob("__pycache__"))
