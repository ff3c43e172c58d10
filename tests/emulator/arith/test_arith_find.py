"""What `find` accepts and refuses, and what every function must keep: lanes outside of the mask, and sources that are the destination."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest

from tests.emulator.arith.support import ALL, SOURCES, Lanes

# x86-64-v2 has no fused multiply-add: its fallbacks are tested too.
pytestmark = pytest.mark.parametrize("lanes", [pytest.param("x86-64-v2", marks=pytest.mark.slow), "native"], indirect=True)
UNKNOWN = [
    ("frobnicate.u32", 3, "no lane arithmetic is called 'frobnicate'"),
    ("add.u8", 3, "not one of the forms"),
    ("add.ftz.s32", 3, "not one of the forms"),
    ("add.rna.f32", 3, "not one of the forms"),
    ("prmt.f4e.b16", 4, "not one of the forms"),
    ("add.sat.sat.f32", 3, "not one of the forms"),
    ("add.u32", 4, "add.u32 with 4 operands"),
    ("mul.s32", 3, "not one of the forms"),
    ("fma.f32", 4, "not one of the forms"),
    ("setp.equ.s32", 3, "not one of the forms"),
    ("setp.lt.b32", 3, "not one of the forms"),
    ("setp.lt.s32", 4, "not one of the forms"),
    ("cvt.s32.f32", 2, "not one of the forms"),
    ("cvt.f16.f32", 2, "not one of the forms"),
    ("cvt.rn.f32.f16", 2, "not one of the forms"),
    ("cvt.rs.f16x2.f32", 4, "not one of the forms"),
    ("cvt.rn.satfinite.e2m1x2.f32", 3, "not one of the forms"),
    ("ex2.f32", 2, "not one of the forms"),
    ("tanh.approx.ftz.f32", 2, "not one of the forms"),
    ("shl.u32", 3, "not one of the forms"),
    ("min.ftz.s32", 3, "not one of the forms"),
    ("fma.rn.f32x2", 4, "need"),
    ("fma.rn.f32.f16", 4, "need"),
    ("add.f32.bf16", 3, "need"),
    ("min.NaN.f32", 4, "need"),
    ("cvt.rn.satfinite.tf32.f32", 2, "needs sm_100"),
    ("fma.rn.oob.f16x2", 4, "not emulated"),
]


@pytest.mark.parametrize(("spelling", "num_operands", "reason"), UNKNOWN)
def test_unknown_forms_are_refused_with_a_reason(lanes: Lanes, spelling: str, num_operands: int, reason: str) -> None:
    said = lanes.describe(spelling, num_operands).reason
    assert reason in said
    assert spelling.split(".")[0] in said


@pytest.mark.parametrize(
    ("spelling", "operands", "d_bytes", "source_bytes"),
    [
        ("mad.wide.s32", "dabc", 8, (4, 4, 8, 0)),
        ("setp.lt.and.f64", "Pabp", 0, (8, 8, 0, 0)),
        ("selp.b16", "dabp", 4, (4, 4, 0, 0)),
        ("lop3.b32", "dabci", 4, (4, 4, 4, 0)),
        ("lop3.or.b32", "Dabcip", 4, (4, 4, 4, 0)),
        ("bfi.b64", "dabce", 8, (8, 8, 4, 4)),
        ("shl.b64", "dab", 8, (8, 4, 0, 0)),
        ("popc.b64", "da", 4, (8, 0, 0, 0)),
        ("cvt.rn.f16x2.f32", "dab", 4, (4, 4, 0, 0)),
        ("cvt.u64.u32", "da", 8, (4, 0, 0, 0)),
        ("and.pred", "Ppq", 0, (0, 0, 0, 0)),
        ("testp.finite.f64", "Pa", 0, (8, 0, 0, 0)),
        ("slct.f64.s32", "dabc", 8, (8, 8, 4, 0)),
    ],
)
def test_operands_are_described(lanes: Lanes, spelling: str, operands: str, d_bytes: int, source_bytes: tuple[int, ...]) -> None:
    known = lanes.describe(spelling, len(operands))
    assert (known.operands, known.d_bytes, known.source_bytes) == (operands, d_bytes, source_bytes)
    assert known.writes_predicate == (operands[0] in "PD")
    assert known.reads_predicate == ("p" in operands)


def test_modifiers_behind_the_types_are_accepted(lanes: Lanes) -> None:
    """NVIDIA's headers write min.s32.relu, and ptxas takes it."""
    minus, plus = [-5 & 0xFFFFFFFF] * 32, [7] * 32
    assert set(lanes.run("min.s32.relu", minus, plus).d.tolist()) == {0}
    assert set(lanes.run("min.s32", minus, plus).d.tolist()) == {0xFFFFFFFB}


FP32, FP64, FP16, INTEGER, SPECIAL, CONVERSION, MOVE = range(7)


@pytest.mark.parametrize(
    ("spelling", "num_operands", "counter"),
    [
        ("fma.rn.f32", 4, FP32), ("add.f64", 3, FP64), ("fma.rn.bf16x2", 4, FP16), ("add.s32", 3, INTEGER), ("setp.lt.f32", 3, FP32),
        ("ex2.approx.ftz.f32", 2, SPECIAL), ("cvt.rn.f16.f32", 2, CONVERSION), ("mov.u32", 2, MOVE), ("addc.u32", 3, INTEGER),
    ],
)  # fmt: skip
def test_instructions_are_counted_by_class(lanes: Lanes, spelling: str, num_operands: int, counter: int) -> None:
    known = lanes.describe(spelling, num_operands)
    assert known.counter == counter
    assert known.is_fma == (spelling == "fma.rn.f32")
    assert known.uses_carry == (spelling == "addc.u32")


def choices(text: str, sets: dict[str, str]) -> list[str]:
    words = []
    for word in text.split("|"):
        words += choices(sets[word[1:-1]], sets) if word.startswith("<") else [word]
    return words


def syntax_rows() -> list[tuple[str, str]]:
    """One spelling for each row of the syntax table (its first choices, optional parts left out and, once, put in), and its operands."""
    text = (SOURCES / "exec/arith/find.cpp").read_text()
    sets = dict(re.findall(r'\{"(\w+)", "([^"]+)"\}', text[text.index("kSets[]") : text.index("struct Row")]))
    rows = re.findall(r'\{"([^"]+)", "(\w+)", "[^"]+", (\w+)', text[text.index("kRows[]") : text.index("// What a modifier")])
    result = []
    for syntax, operands, pick in rows:
        if pick == "nullptr":
            continue
        for optional in (r"", r"\1"):
            spelling = re.sub(r"\{([^}]*)\}", optional, syntax)
            spelling = re.sub(r"\(([^)]*)\)", lambda match: choices(match[1], sets)[-1], spelling)
            spelling = re.sub(r"<(\w+)>", lambda match: choices(match[0], sets)[-1], spelling)
            result.append((spelling, operands))
    return sorted(set(result))


@pytest.mark.parametrize("in_place", [False, True])
def test_masked_lanes_keep_their_values(lanes: Lanes, in_place: bool) -> None:
    """Every row of the syntax table: a run under a mask equals a full run in active lanes and the old destination elsewhere."""
    random = np.random.default_rng(51)
    masks = np.array([0x00000001, 0x80000000, 0xFFFF0000, 0x5A5A1234, 0, 0xFFFFFFFE], np.uint32)
    active = ((masks[:, None] >> np.arange(32, dtype=np.uint32)) & 1).astype(bool).reshape(-1)
    count = active.size
    for spelling, operands in syntax_rows():
        known = lanes.describe(spelling, len(operands))
        assert not known.reason, known.reason
        if in_place and ("a" not in operands or known.d_bytes != known.source_bytes[0]):
            continue
        sources = [random.integers(0, 1 << 64, count, dtype=np.uint64) for letter in operands if letter in "abce"]
        if spelling == "fns.b32":
            sources[1] &= np.uint64(31)
        predicates = [int(random.integers(0, 1 << 32)) for letter in operands if letter in "pq"]
        before = sources[0] if in_place else random.integers(0, 1 << 64, count, dtype=np.uint64)
        run = partial(
            lanes.run,
            spelling,
            *sources,
            num_operands=len(operands),
            predicates=predicates,
            carry=0x33CC0F0F,
            immediate=0xCA,
            before=before,
        )
        full = run(masks=np.full_like(masks, ALL))
        part = run(masks=masks, in_place=in_place)
        if known.d_bytes:
            old = before.astype(full.d.dtype)
            assert np.array_equal(part.d, np.where(active, full.d, old)), spelling
        for which, initial in (("p", 0x5A5A5A5A), ("q", 0xA5A5A5A5), ("carry", 0x33CC0F0F)):
            old_bits = np.tile((initial >> np.arange(32)) & 1, masks.size).astype(bool)
            assert np.array_equal(part.lanes(which), np.where(active, full.lanes(which), old_bits)), (spelling, which)


def test_narrow_results_clear_the_upper_bits(lanes: Lanes) -> None:
    ones = [0xFFFFFFFF] * 32
    for spelling, count in {
        "add.u16": 2,
        "not.b16": 1,
        "mul.hi.s16": 2,
        "neg.f16": 1,
        "fma.rn.bf16": 3,
        "mov.b16": 1,
        "shr.s16": 2,
    }.items():
        result = lanes.run(spelling, *[ones] * count)
        assert not np.any(result.d >> np.uint32(16)), spelling
    assert lanes.run("cvt.s16.s32", ones).d[0] == 0xFFFFFFFF
    assert lanes.run("cvt.u16.s32", ones).d[0] == 0xFFFF
