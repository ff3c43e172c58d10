"""Every instruction of the corpus on the emulated device, against what an H200 computed for the same inputs.

What PTX defines exactly agrees in every bit. Approximate functions agree within the distance that the corpus states for each.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from device.settings import read_settings
from harness.toolchain import find_toolchain

from .cuda_runtime import Runtime
from .opcodes.record import Instruction, compile_chunks, make_corpus, make_inputs, run_corpus

GOLDENS = Path(__file__).parent / "opcodes" / "goldens.npz"
CORPUS = {instruction.name: instruction for instruction in make_corpus()}
FLOATS = {"f16": (np.uint16, 10), "bf16": (np.uint16, 7), "f32": (np.uint32, 23), "f64": (np.uint64, 52)}


@pytest.fixture(scope="module")
def goldens() -> dict[str, NDArray[np.generic]]:
    assert GOLDENS.is_file(), f"{GOLDENS} is missing; on a machine with an H200: python tests/emulator/opcodes/record.py"
    with np.load(GOLDENS) as file:
        return {str(n): bits for w in (16, 32, 64) for n, bits in zip(file[f"names{w}"], file[f"bits{w}"], strict=True)}


@pytest.fixture(scope="module")
def results(_loaded_runtime: Runtime) -> dict[str, NDArray[np.generic]]:
    corpus = list(CORPUS.values())
    sources = hashlib.sha256(b"".join(p.read_bytes() for p in sorted(GOLDENS.parent.glob("*.py"))))
    folder = read_settings().cache_dir / "opcodes" / sources.hexdigest()[:16]
    libraries = sorted(folder.glob("*.so"))
    if not (folder / "complete").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        libraries = compile_chunks(corpus, str(find_toolchain().nvcc), folder)
        (folder / "complete").touch()
    found = run_corpus(corpus, libraries, _loaded_runtime.library)
    widths = {16: np.uint16, 32: np.uint32, 64: np.uint64}
    return {i.name: row.astype(widths[i.d]) for i, row in zip(corpus, found, strict=True)}


def to_float(bits: NDArray[np.generic], kind: str) -> NDArray[np.float64]:
    """Read bit patterns as values."""
    if kind == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return bits.view({"f16": np.float16, "f32": np.float32, "f64": np.float64}[kind]).astype(np.float64)


def find_wrong(instruction: Instruction, got: NDArray[np.generic], expected: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Return True where an approximate result is further from the recorded one than the corpus allows; any NaN equals any NaN."""
    _, mantissa_bits = FLOATS[instruction.kind]
    x, y = to_float(got, instruction.kind), to_float(expected, instruction.kind)
    tiny = {"f16": 2.0**-24, "bf16": 2.0**-133, "f32": 2.0**-149, "f64": 2.0**-1074}[instruction.kind]
    with np.errstate(invalid="ignore"):
        ulp = np.maximum(np.exp2(np.floor(np.log2(np.maximum(np.abs(y), tiny))) - mantissa_bits), tiny)
        near = np.abs(x - y) <= np.maximum(float(instruction.max_ulp or 0) * ulp, instruction.max_abs)
    return ~(near | (x == y) | (np.isnan(x) & np.isnan(y)))


def test_the_recording_is_of_this_corpus(goldens: dict[str, NDArray[np.generic]]) -> None:
    assert set(goldens) == set(CORPUS), "the corpus changed: record it again on an H200"


@pytest.mark.parametrize("opcode", sorted({i.text.split(".")[0].split(" ")[0] for i in CORPUS.values()}))
def test_results_are_those_of_an_h200(
    results: dict[str, NDArray[np.generic]], goldens: dict[str, NDArray[np.generic]], opcode: str
) -> None:
    inputs = make_inputs()
    complaints = []
    for name, instruction in CORPUS.items():
        if instruction.text.split(".")[0].split(" ")[0] != opcode:
            continue
        got, expected = results[name], goldens[name]
        wrong = got != expected if instruction.max_ulp is None else find_wrong(instruction, got, expected)
        if wrong.any():
            k = int(np.argmax(wrong))
            operands = ", ".join(f"{int(row[k]):#x}" for row in inputs)
            complaints.append(
                f"{name}: {np.count_nonzero(wrong)} wrong, first for {operands}: {int(got[k]):#x}, an H200 has {int(expected[k]):#x}"
            )
    assert not complaints, "\n".join(complaints)


def test_the_comparison_refuses_a_result_three_units_off() -> None:
    instruction = next(i for i in CORPUS.values() if i.text.startswith("rcp.approx.f32"))
    expected = np.array([1.5, 1.5, np.nan, 0.0], np.float32).view(np.uint32)
    got = expected + np.array([2, 3, 1, 0], np.uint32)
    assert find_wrong(instruction, got, expected).tolist() == [False, True, False, False]
