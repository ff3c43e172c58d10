"""Every instruction of the corpus on the emulator against what an H200 computed for the same inputs (``tests/goldens/arithmetic.npz``).

Bits must agree, NaNs included; the ISA's approximate instructions have the tolerance that the corpus states. Exact rational arithmetic
checks the goldens themselves for the IEEE operations, so that a bad recording cannot become the truth.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import sys
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from device.toolchain import find_toolchain

from .cuda_runtime import Runtime

FOLDER = Path(__file__).with_name("opcodes")
GOLDENS = Path(__file__).parents[1] / "goldens/arithmetic.npz"


def _load(name: str) -> ModuleType:
    """Import a module of the corpus as ``record.py`` does on a machine without this project: by its plain name."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


_load("syntax")
corpus = _load("corpus")
record = _load("record")
CORPUS = corpus.make_corpus()
INPUTS = corpus.make_inputs()
FLOATS = {"f16": (np.uint16, 10), "bf16": (np.uint16, 7), "f32": (np.uint32, 23), "f64": (np.uint64, 52)}


@pytest.fixture(scope="session")
def goldens() -> dict[str, NDArray[Any]]:
    """Recorded bits [elements] by instruction name."""
    with np.load(GOLDENS) as file:
        groups = [name.removeprefix("names") for name in file.files if name.startswith("names")]
        return {str(n): bits for g in groups for n, bits in zip(file[f"names{g}"], file[f"bits{g}"], strict=True)}


@pytest.fixture(scope="session")
def results(_loaded_runtime: Runtime, tmp_path_factory: pytest.TempPathFactory) -> NDArray[np.uint64]:
    """Results [instructions, elements] of the device under test."""
    if _loaded_runtime.is_emulated:
        modules = record.write_modules(CORPUS)
    else:
        modules = record.compile_modules(CORPUS, str(find_toolchain().nvcc.with_name("ptxas")), tmp_path_factory.mktemp("opcodes"))
    rows: NDArray[np.uint64] = record.run_corpus(CORPUS, modules, _loaded_runtime.library)
    return rows


def to_value(bits: int, kind: str) -> float:
    """The number that a pattern of f16, bf16, f32 or f64 means; a double holds each of them."""
    if kind == "bf16":
        bits, kind = bits << 16, "f32"
    dtype = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[kind]
    return float(np.array([bits], FLOATS[kind][0]).view(dtype)[0])


def count_ulps(left: int, right: int, kind: str) -> int:
    """Distance in representable values, where +0 and -0 are one."""
    width = 16 if kind in ("f16", "bf16") else int(kind[1:])

    def rank(bits: int) -> int:
        magnitude = bits & ((1 << (width - 1)) - 1)
        return -magnitude if bits >> (width - 1) else magnitude

    return abs(rank(left) - rank(right))


def is_close(want: int, got: int, instruction: Any) -> bool:
    """Whether ``got`` is within the instruction's tolerance of ``want``; NaN agrees with the same NaN alone, infinity with itself alone."""
    if want == got:
        return True
    if instruction.max_ulp is None:
        return False
    if instruction.kind.endswith("x2"):
        half = dataclasses.replace(instruction, kind=instruction.kind.removesuffix("x2"))
        return all(is_close(want >> shift & 0xFFFF, got >> shift & 0xFFFF, half) for shift in (0, 16))
    a, b = to_value(want, instruction.kind), to_value(got, instruction.kind)
    if math.isnan(a) or math.isnan(b):
        return False
    if math.isinf(a) or math.isinf(b):
        return count_ulps(want, got, instruction.kind) <= instruction.max_ulp and a == b
    return abs(a - b) <= instruction.max_abs or count_ulps(want, got, instruction.kind) <= instruction.max_ulp


def test_corpus_has_golden_for_every_instruction(goldens: dict[str, NDArray[Any]]) -> None:
    missing = [i.name for i in CORPUS if i.name not in goldens]
    assert not missing, f"record them on a GPU with {FOLDER.name}/record.py: {missing[:10]}"
    assert len(goldens) == len(CORPUS), "the goldens hold instructions that the corpus no longer has: record them again"


GROUPS: dict[str, list[int]] = {}
for _index, _instruction in enumerate(CORPUS):
    _parts = _instruction.text.split()[0].rstrip(";").split(".")
    GROUPS.setdefault(".".join((_parts[0], *_parts[-2:])) if len(_parts) > 2 else ".".join(_parts), []).append(_index)


@pytest.mark.parametrize("group", GROUPS)
def test_instructions_agree_with_gpu(group: str, results: NDArray[np.uint64], goldens: dict[str, NDArray[Any]]) -> None:
    wrong = [text for index in GROUPS[group] if (text := describe_difference(CORPUS[index], results[index], goldens[CORPUS[index].name]))]
    assert not wrong, "\n".join(wrong[:10])


def describe_difference(instruction: Any, got: NDArray[np.uint64], want: NDArray[Any]) -> str:
    """Say where results are out of tolerance; empty when nowhere."""
    differing = np.flatnonzero(want.astype(np.uint64) != got[: len(want)])
    wrong = [int(i) for i in differing if not is_close(int(want[i]), int(got[i]), instruction)]
    shown = [
        f"    element {i}: " + " ".join(f"{n}={int(v[i]):#x}" for n, v in zip("abc", INPUTS, strict=True)) + f" -> {int(got[i]):#x}, "
        f"an H200 gives {int(want[i]):#x}"
        for i in wrong[:3]
    ]
    return f"{instruction.name}: {len(wrong)} of {len(want)} differ\n" + "\n".join(shown) if wrong else ""


def test_comparison_tells_wrong_results(goldens: dict[str, NDArray[Any]]) -> None:
    """A bit off in an exact instruction, and more than the tolerance in an approximate one, are seen."""
    for spelling, bit in (("add.rn.f32 ", 1), ("ex2.approx.f32 ", 8)):
        instruction = next(i for i in CORPUS if i.text.startswith(spelling))
        want = goldens[instruction.name]
        assert not describe_difference(instruction, want.astype(np.uint64), want)
        assert describe_difference(instruction, want.astype(np.uint64) ^ np.uint64(bit), want)


def _round(value: Fraction, mode: str, mantissa: int, min_exponent: int, max_exponent: int) -> Fraction | None:
    """Round to the format; None where the result overflows the largest finite number."""
    if value == 0:
        return value
    exponent = max(math.floor(math.log2(abs(value.numerator))) - math.floor(math.log2(value.denominator)) - 1, min_exponent)
    while abs(value) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    unit = Fraction(2) ** (exponent - mantissa)
    steps = value / unit
    whole = {"rn": round, "rz": math.trunc, "rm": math.floor, "rp": math.ceil}[mode](steps)
    rounded = whole * unit
    return None if abs(rounded) >= Fraction(2) ** (max_exponent + 1) else rounded


OPERATIONS = {
    "add": lambda a, b, c: a + b,
    "sub": lambda a, b, c: a - b,
    "mul": lambda a, b, c: a * b,
    "div": lambda a, b, c: a / b if b else None,
    "fma": lambda a, b, c: a * b + c,
}
FORMATS = {"f16": (10, -14, 15), "bf16": (7, -126, 127), "f32": (23, -126, 127), "f64": (52, -1022, 1023)}
IEEE = [
    (f"{op}.{mode}.{kind}", op, mode, kind)
    for kind, modes in (("f32", corpus.RN_MODES), ("f64", corpus.RN_MODES), ("f16", ("rn",)), ("bf16", ("rn",)))
    for op in OPERATIONS
    for mode in modes
    if not (op == "div" and kind in ("f16", "bf16"))
]


@pytest.mark.parametrize(("name", "op", "mode", "kind"), IEEE, ids=[case[0] for case in IEEE])
def test_golden_is_correctly_rounded(name: str, op: str, mode: str, kind: str, goldens: dict[str, NDArray[Any]]) -> None:
    """Finite results against exact rational arithmetic, for every eighth element: the fractions are slow."""
    operands = "d, a, b, c;" if op == "fma" else "d, a, b;"
    golden = goldens[f"{name} {operands}"]
    mask = (1 << (golden.dtype.itemsize * 8)) - 1
    num_checked = 0
    for i in range(0, corpus.NUM_ELEMS, 8):
        values = [to_value(int(row[i]) & mask, kind) for row in INPUTS]
        used = values if op == "fma" else values[:2]
        if not all(map(math.isfinite, used)):
            continue
        exact = OPERATIONS[op](*(Fraction(v) if math.isfinite(v) else Fraction(0) for v in values))
        rounded = None if exact is None else _round(exact, mode, *FORMATS[kind])
        if rounded is None:
            continue
        assert Fraction(to_value(int(golden[i]), kind)) == rounded, f"element {i}: {values}"
        num_checked += 1
    assert num_checked > 30
