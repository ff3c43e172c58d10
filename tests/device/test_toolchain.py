"""Finding the compilers: what cannot be used is passed over, and named where nothing can."""

from __future__ import annotations

from pathlib import Path

import pytest

from device.interface import UnavailableError
from device.toolchain import CUDA_RELEASE, _find_toolkit, _nvcc_candidates, name_remedy


def make_nvcc(root: Path, *, release: str = CUDA_RELEASE, whole: bool = True, script: str = "") -> Path:
    nvcc = root / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(script or f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.88'\n")
    nvcc.chmod(0o755)
    if whole:
        for name in ("include/cuda_runtime_api.h", "lib64/libcudart.so.13"):
            (root / name).parent.mkdir()
            (root / name).touch()
    return nvcc


def test_wrappers_other_releases_and_broken_files_do_not_end_the_search(tmp_path: Path) -> None:
    wrapper = make_nvcc(tmp_path / "wrapper", whole=False)
    old = make_nvcc(tmp_path / "old", release="12.4")
    broken = make_nvcc(tmp_path / "broken", script="#!/no/such/interpreter\n")
    mute = make_nvcc(tmp_path / "mute", script="#!/bin/sh\nexit 1\n")
    whole = make_nvcc(tmp_path / "whole")
    found = _find_toolkit([tmp_path / "nothing", wrapper, old, broken, mute, whole])
    assert (found.nvcc, found.version, found.include) == (whole, f"{CUDA_RELEASE}.88", tmp_path / "whole" / "include")
    with pytest.raises(UnavailableError) as caught:
        _find_toolkit([wrapper, old, broken, mute, wrapper])
    text = str(caught.value)
    assert f"{wrapper} has no cuda_runtime_api.h below {tmp_path / 'wrapper'}: a wrapper" in text
    assert f"{old} is release 12.4" in text and f"{mute} is release unknown" in text
    assert f"{broken} cannot be run: No such file" in text
    assert text.count(str(wrapper)) == 1 and text.endswith(name_remedy())


def test_every_nvcc_on_the_path_is_a_candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path / 'a'}:{tmp_path / 'b'}")
    assert [tmp_path / "a" / "nvcc", tmp_path / "b" / "nvcc"] == [p for p in _nvcc_candidates() if p.is_relative_to(tmp_path)]
