from __future__ import annotations

from pathlib import Path

import pytest

from device.settings import EMULATOR_PREFIX, VARIABLES, SettingError, find_project_root, find_unknown_variables, read_settings

ROOT = Path(__file__).resolve().parents[2]


def test_defaults() -> None:
    settings = read_settings({})
    assert settings.device == "auto"
    assert settings.emulator_library is None
    assert settings.cache_dir == ROOT / ".aicf" / "cache"
    assert settings.records_url == f"sqlite:///{ROOT / '.aicf' / 'records.sqlite'}"
    assert settings.target == "h200"
    assert settings.jobs >= 1


def test_an_empty_value_counts_as_unset() -> None:
    assert read_settings({v.name: "" for v in VARIABLES}) == read_settings({})


def test_values_are_obeyed(tmp_path: Path) -> None:
    settings = read_settings(
        {
            "AICF_DEVICE": "emulated",
            "AICF_EMULATOR_LIBRARY": str(tmp_path / "lib.so"),
            "AICF_CACHE_DIR": str(tmp_path),
            "AICF_RECORDS_URL": "postgresql://host/db",
            "AICF_TARGET": "a100",
            "AICF_JOBS": "3",
        }
    )
    assert settings.device == "emulated"
    assert settings.emulator_library == tmp_path / "lib.so"
    assert settings.cache_dir == tmp_path
    assert settings.records_url == "postgresql://host/db"
    assert settings.target == "a100"
    assert settings.jobs == 3


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("AICF_DEVICE", "gpu", "auto, cuda, emulated"),
        ("AICF_TARGET", "h900", "h200, h100, a100"),
        ("AICF_JOBS", "0", "at least 1"),
        ("AICF_JOBS", "two", "at least 1"),
        ("AICF_JOBS", "-1", "at least 1"),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(name: str, value: str, part: str) -> None:
    with pytest.raises(SettingError) as caught:
        read_settings({name: value})
    assert name in str(caught.value)
    assert value in str(caught.value)
    assert part in str(caught.value)


def test_relative_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_settings({"AICF_CACHE_DIR": "cache"}).cache_dir == tmp_path / "cache"


def test_misspelt_variables_are_found() -> None:
    assert find_unknown_variables({"AICF_DEVIC": "cuda", "AICF_DEVICE": "cuda", "AICF_EMULATED_SEED": "1", "HOME": "/"}) == ("AICF_DEVIC",)


def test_a_misspelt_option_of_the_emulator_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SettingError, match=r"^AICF_EMULATED_SCHEDUL: the emulator has no such option; did you mean 'SCHEDULE'\?$"):
        read_settings({"AICF_EMULATED_SCHEDUL": "random"})
    with pytest.raises(SettingError, match="no such option; it has: checks, counters, "):
        read_settings({"AICF_EMULATED_X": "1"})
    assert read_settings({"AICF_EMULATED_SCHEDULE": "random", "AICF_EMULATED_X": ""}) == read_settings({})


def test_every_setting_has_a_described_variable() -> None:
    names = {v.name.removeprefix("AICF_").lower() for v in VARIABLES if not v.name.startswith(EMULATOR_PREFIX)}
    assert names == set(read_settings({}).__dataclass_fields__)
    assert all(v.meaning and v.default for v in VARIABLES)


def test_the_project_root_is_the_checkout_wherever_we_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_project_root() == ROOT
