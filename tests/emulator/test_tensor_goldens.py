"""Every matrix instruction of the corpus on the emulator, over ordinary and extreme inputs (``opcodes/tensor_corpus.py``)."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.toolchain import find_toolchain

from .cuda_runtime import Runtime
from .test_opcodes import _load

_load("record")
corpus = _load("tensor_corpus")
record = _load("tensor_record")
CORPUS = [form for form in corpus.make_corpus() if form.family == "mma"]


@pytest.fixture(scope="session")
def results(_loaded_runtime: Runtime, tmp_path_factory: pytest.TempPathFactory) -> dict[str, NDArray[np.uint64]]:
    """Result patterns [cases, m, n] of the device under test, by name."""
    gencode = ("-gencode", "arch=compute_90a,code=compute_90a") if _loaded_runtime.is_emulated else record.GENCODE
    libraries = record.compile_corpus(CORPUS, str(find_toolchain().nvcc), Path(tmp_path_factory.mktemp("tensor")), gencode, chunks=2)
    found = {}
    for path, mine in libraries:
        library = ctypes.CDLL(str(path))
        for index in mine:
            found[CORPUS[index].name] = record.run_form(CORPUS[index], index, library, _loaded_runtime.library)
    return found


@pytest.mark.parametrize("form", CORPUS, ids=[form.name for form in CORPUS])
def test_ordinary_numbers_agree_with_numpy(form: Any, results: dict[str, NDArray[np.uint64]]) -> None:
    error = record.worst_error(form, results[form.name])
    assert error <= record.error_limit(form)
