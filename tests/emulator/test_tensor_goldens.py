"""Every matrix instruction of the corpus on the emulator against what an H200 computed (``tests/goldens/tensor.npz``): bits must agree.

The inputs run from ordinary numbers over cancellation and subnormals to overflow, infinities and NaN (``opcodes/tensor_corpus.py``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from device.toolchain import find_toolchain

from .cuda_runtime import Runtime
from .test_opcodes import FOLDER, _load

_load("record")
GOLDENS = FOLDER.parents[1] / "goldens/tensor.npz"
corpus = _load("tensor_corpus")
record = _load("tensor_record")
CORPUS = corpus.make_corpus()


@pytest.fixture(scope="session")
def results(_loaded_runtime: Runtime, tmp_path_factory: pytest.TempPathFactory) -> dict[str, NDArray[np.uint64]]:
    """Result patterns [cases, m, n] of the device under test, by name."""
    gencode = ("-gencode", "arch=compute_90a,code=compute_90a") if _loaded_runtime.is_emulated else record.GENCODE
    libraries = record.compile_corpus(CORPUS, str(find_toolchain().nvcc), tmp_path_factory.mktemp("tensor"), gencode, chunks=2)
    found: dict[str, NDArray[np.uint64]] = record.run_corpus(CORPUS, libraries, _loaded_runtime.library)
    return found


@pytest.fixture(scope="session")
def goldens() -> dict[str, NDArray[np.uint64]]:
    """Recorded patterns [cases, m, n] by name."""
    with np.load(GOLDENS) as file:
        found: dict[str, NDArray[np.uint64]] = corpus.unpack_results(CORPUS, file)
    return found


@pytest.mark.parametrize("form", CORPUS, ids=[form.name for form in CORPUS])
def test_bits_agree_with_gpu(form: Any, results: dict[str, NDArray[np.uint64]], goldens: dict[str, NDArray[np.uint64]]) -> None:
    want, got = goldens[form.name], results[form.name]
    wrong = np.argwhere(want != got)
    shown = [f"case {c}, row {i}, column {j}: {int(got[c, i, j]):#x}, an H200 gives {int(want[c, i, j]):#x}" for c, i, j in wrong[:5]]
    assert not len(wrong), f"{len(wrong)} of {want.size} differ\n" + "\n".join(shown)


@pytest.mark.parametrize("form", CORPUS, ids=[form.name for form in CORPUS])
def test_goldens_agree_with_numpy(form: Any, goldens: dict[str, NDArray[np.uint64]]) -> None:
    """A check of the recording, over the ordinary inputs: layouts and shapes were right on the GPU, too."""
    error = record.worst_error(form, goldens[form.name])
    assert error <= record.error_limit(form)
