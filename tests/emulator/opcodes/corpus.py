"""Instructions whose results are known from real hardware: one kernel per spelling, and the inputs that all of them are given.

Needs nothing but NumPy, so that ``record.py`` runs wherever there is a GPU and ptxas.

An :class:`Instruction` is PTX text over named registers: ``d`` is the result, ``a b c`` the sources, ``p q`` predicates. Each kernel reads
one 64-bit pattern per source and thread, cuts it to the source's width, and writes the result's bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray
from syntax import find_spellings

NUM_ELEMS = 1024
NUM_DERIVED_ELEMS = 256
BLOCK = 128
SEED = 20260101

RN_MODES = ("rn", "rz", "rm", "rp")
INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")


@dataclass(frozen=True)
class Instruction:
    """``text`` in PTX; widths in bits of the result and of each source; ``max_ulp`` is None where bits must agree.

    ``max_abs`` is an absolute error, as the PTX ISA states one for sin, cos, lg2 and tanh: either bound suffices. ``kind`` is how the
    result is to be read for the distance: f16, bf16, f32 or f64.
    """

    text: str
    d: int
    sources: tuple[int, ...]
    kind: str = "bits"
    max_ulp: int | None = None
    max_abs: float = 0.0
    setup: str = ""
    num_elems: int = NUM_ELEMS  # how many results are kept

    @property
    def name(self) -> str:
        """The instruction's spelling, with setup or operands where those tell it from another."""
        return self.text.replace("\n", " ")


def _width(type_name: str) -> int:
    return {"f16x2": 32, "bf16x2": 32, "tf32": 32, "e4m3x2": 16, "e5m2x2": 16}.get(type_name) or int(
        "".join(c for c in type_name if c.isdigit())
    )


def _same(opcode: str, type_name: str, num: int, **more: object) -> Instruction:
    w = _width(type_name)
    text = f"{opcode}.{type_name} d, {', '.join('abc'[:num])};"
    return Instruction(text, w, (w,) * num, **more)  # type: ignore[arg-type]


def _integers() -> Iterator[Instruction]:
    for t in INTEGERS:
        w = _width(t)
        for op in ("add", "sub", "min", "max", "mul.lo", "mul.hi", "div", "rem"):
            yield _same(op, t, 2)
        for op in ("mad.lo", "sad") + (("mad.hi",) if w > 16 else ()):
            yield _same(op, t, 3)
        if w < 64:
            yield Instruction(f"mul.wide.{t} d, a, b;", 2 * w, (w, w))
            yield Instruction(f"mad.wide.{t} d, a, b, c;", 2 * w, (w, w, 2 * w))
        if t[0] == "s":
            yield _same("abs", t, 1)
            yield _same("neg", t, 1)
        for shift in ("shr",):
            yield Instruction(f"{shift}.{t} d, a, b;", w, (w, 32))
        if w > 16:
            yield Instruction(f"bfind.{t} d, a;", 32, (w,))
            yield Instruction(f"bfind.shiftamt.{t} d, a;", 32, (w,))
            yield Instruction(f"bfe.{t} d, a, b, c;", w, (w, 32, 32))
    for sat in ("add.sat.s32", "sub.sat.s32"):
        yield Instruction(f"{sat} d, a, b;", 32, (32, 32))
    yield Instruction("mad.hi.sat.s32 d, a, b, c;", 32, (32, 32, 32))
    for op, t in product(("mul24.lo", "mul24.hi"), ("u32", "s32")):
        yield _same(op, t, 2)
    for op, t in product(("mad24.lo", "mad24.hi"), ("u32", "s32")):
        yield _same(op, t, 3)
    for ta, tb in product(("u32", "s32"), repeat=2):
        yield Instruction(f"dp4a.{ta}.{tb} d, a, b, c;", 32, (32, 32, 32))
        for half in ("lo", "hi"):
            yield Instruction(f"dp2a.{half}.{ta}.{tb} d, a, b, c;", 32, (32, 32, 32))


def _bits() -> Iterator[Instruction]:
    for w in (16, 32, 64):
        for op in ("and", "or", "xor"):
            yield Instruction(f"{op}.b{w} d, a, b;", w, (w, w))
        for op in ("not", "cnot"):
            yield Instruction(f"{op}.b{w} d, a;", w, (w,))
        yield Instruction(f"shl.b{w} d, a, b;", w, (w, 32))
        if w > 16:
            yield Instruction(f"brev.b{w} d, a;", w, (w,))
            yield Instruction(f"popc.b{w} d, a;", 32, (w,))
            yield Instruction(f"clz.b{w} d, a;", 32, (w,))
            yield Instruction(f"bfi.b{w} d, a, b, c, 5;", w, (w, w, 32))
            yield Instruction(f"bfi.b{w} d, a, b, 3, c;", w, (w, w, 32))
    for table in (0x00, 0x80, 0xFE, 0x96, 0xE8, 0xCA, 0x1B, 0xFF):
        yield Instruction(f"lop3.b32 d, a, b, c, {table:#x};", 32, (32, 32, 32))
    for mode in ("", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"):
        yield Instruction(f"prmt.b32{mode} d, a, b, c;", 32, (32, 32, 32))
    for direction, mode in product("lr", ("clamp", "wrap")):
        yield Instruction(f"shf.{direction}.{mode}.b32 d, a, b, c;", 32, (32, 32, 32))
    for mode, sign in product(("clamp", "wrap"), ("u32", "s32")):
        yield Instruction(f"szext.{mode}.{sign} d, a, b;", 32, (32, 32))
    for mode in ("clamp", "wrap"):
        yield Instruction(f"bmsk.{mode}.b32 d, a, b;", 32, (32, 32))
    yield Instruction("fns.b32 d, a, b, 1;", 32, (32, 32), setup="and.b32 b, b, 31;")
    yield Instruction("fns.b32 d, a, b, -2;", 32, (32, 32), setup="and.b32 b, b, 31;")


def _carries() -> Iterator[Instruction]:
    for t in ("u32", "u64"):
        w = _width(t)
        for first, second in (("add.cc", "addc"), ("sub.cc", "subc")):
            yield Instruction(f"{first}.{t} d, a, b;\n{second}.{t} d, c, 0;", w, (w, w, w))
            yield Instruction(f"{first}.{t} d, a, b;\n{second}.cc.{t} d, c, a;\n{second}.{t} d, 0, 0;", w, (w, w, w))
        yield Instruction(f"mad.lo.cc.{t} d, a, b, c;\nmadc.hi.{t} d, a, b, c;", w, (w, w, w))


def _float_arithmetic() -> Iterator[Instruction]:
    for t, tail in (("f32", ("", ".ftz", ".sat", ".ftz.sat")), ("f64", ("",))):
        for mode, more in product(RN_MODES, tail):
            for op in ("add", "sub", "mul"):
                yield _same(f"{op}.{mode}{more}", t, 2)
            yield _same(f"fma.{mode}{more}", t, 3)
        for mode, more in product(RN_MODES, ("", ".ftz") if t == "f32" else ("",)):
            yield _same(f"div.{mode}{more}", t, 2)
            yield _same(f"sqrt.{mode}{more}", t, 1)
            yield _same(f"rcp.{mode}{more}", t, 1)
        for more in ("", ".ftz") if t == "f32" else ("",):
            for op in ("min", "max"):
                yield _same(f"{op}{more}", t, 2)
            for op in ("abs", "neg"):
                yield _same(f"{op}{more}", t, 1)
        yield _same("copysign", t, 2)
        for what in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
            yield Instruction(f"testp.{what}.{t} p, a;\nselp.b32 d, 1, 0, p;", 32, (_width(t),))
    for op, more in product(("min", "max"), (".NaN", ".ftz.NaN", ".NaN.xorsign.abs", ".xorsign.abs")):
        yield _same(f"{op}{more}", "f32", 2)


def _half_arithmetic() -> Iterator[Instruction]:
    for t in ("f16", "f16x2"):
        for more in ("", ".ftz", ".sat", ".ftz.sat"):
            for op in ("add", "sub", "mul"):
                yield _same(f"{op}.rn{more}", t, 2)
            yield _same(f"fma.rn{more}", t, 3)
        yield _same("fma.rn.relu", t, 3)
    for t in ("bf16", "bf16x2"):
        for op in ("add.rn", "sub.rn", "mul.rn"):
            yield _same(op, t, 2)
        yield _same("fma.rn", t, 3)
        yield _same("fma.rn.relu", t, 3)
    for t in ("f16", "f16x2", "bf16", "bf16x2"):
        for op, more in product(("min", "max"), ("", ".NaN", ".xorsign.abs")):
            yield _same(f"{op}{more}", t, 2)
        for op in ("abs", "neg"):
            yield _same(op, t, 1)


def _approximate() -> Iterator[Instruction]:
    for more in ("", ".ftz"):
        for op in ("rcp", "sqrt", "rsqrt", "ex2"):
            yield _same(f"{op}.approx{more}", "f32", 1, kind="f32", max_ulp=2)
        yield _same(f"lg2.approx{more}", "f32", 1, kind="f32", max_ulp=2, max_abs=2.0**-22)
        for op in ("sin", "cos"):
            yield Instruction(f"{op}.approx{more}.f32 d, a;", 32, (32,), kind="f32", max_ulp=2, max_abs=2.0**-20.5, setup=_IN_TWO_PI)
        yield _same(f"div.approx{more}", "f32", 2, kind="f32", max_ulp=2)
        yield _same(f"div.full{more}", "f32", 2, kind="f32", max_ulp=2)
    yield _same("tanh.approx", "f32", 1, kind="f32", max_ulp=2, max_abs=2.0**-10.987)
    for op in ("rcp", "rsqrt"):
        yield _same(f"{op}.approx.ftz", "f64", 1, kind="f64", max_ulp=2**32)
    for t, kind in (("f16", "f16"), ("bf16", "bf16")):
        yield _same("tanh.approx", t, 1, kind=kind, max_ulp=2, max_abs=2.0**-10.987 if t == "f16" else 2.0**-8)
    yield _same("ex2.approx", "f16", 1, kind="f16", max_ulp=2)
    yield _same("ex2.approx.ftz", "bf16", 1, kind="bf16", max_ulp=2)


# The ISA bounds sin and cos by an absolute error on [-2 pi, 2 pi] alone.
_IN_TWO_PI = "abs.f32 p32, a;\nsetp.le.f32 p, p32, 0f40C90FDB;\nselp.f32 a, a, 0f3F000000, p;"


def _comparisons() -> Iterator[Instruction]:
    ordered = ("eq", "ne", "lt", "le", "gt", "ge")
    unordered = ("equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
    for t in ("f32", "f64", "f16", "bf16", "f32.ftz"):
        base, _, ftz = t.partition(".")
        w = _width(base)
        for compare in ordered + unordered:
            more = ".ftz" if ftz else ""
            yield Instruction(f"setp.{compare}{more}.{base} p, a, b;\nselp.b32 d, 1, 0, p;", 32, (w, w))
    for t in INTEGERS:
        for compare in ("eq", "ne", "lt", "le", "gt", "ge"):
            yield Instruction(f"setp.{compare}.{t} p, a, b;\nselp.b32 d, 1, 0, p;", 32, (_width(t),) * 2)
    for compare in ("lo", "ls", "hi", "hs"):
        yield Instruction(f"setp.{compare}.u32 p, a, b;\nselp.b32 d, 1, 0, p;", 32, (32, 32))
    for boolean in ("and", "or", "xor"):
        text = f"setp.gt.s32 p, c, 0;\nsetp.lt.{boolean}.s32 p|q, a, b, p;\nselp.b32 d, 1, 0, p;\n@q add.u32 d, d, 2;"
        yield Instruction(text, 32, (32, 32, 32))
    for dt, st in product(("u32", "s32", "f32"), ("s32", "f32", "u16", "f64")):
        yield Instruction(f"set.lt.{dt}.{st} d, a, b;", 32, (_width(st),) * 2)
    for t in ("b16", "b32", "b64", "f32", "f64"):
        w = _width(t)
        yield Instruction(f"setp.ne.s32 p, c, 0;\nselp.{t} d, a, b, p;", w, (w, w, 32))
    for t in ("u32", "f32", "s64", "f64"):
        w = _width(t)
        yield Instruction(f"slct.{t}.s32 d, a, b, c;", w, (w, w, 32))
        yield Instruction(f"slct.{t}.f32 d, a, b, c;", w, (w, w, 32))


def _conversions() -> Iterator[Instruction]:
    small = ("u8", "s8", *INTEGERS)
    for dt, st in product(small, repeat=2):
        if dt != st:
            yield Instruction(f"cvt.{dt}.{st} d, a;", max(_width(dt), 16), (max(_width(st), 16),), setup=_cut(st))
            if not _holds(dt, st):  # ptxas refuses .sat where nothing can saturate
                yield Instruction(f"cvt.sat.{dt}.{st} d, a;", max(_width(dt), 16), (max(_width(st), 16),), setup=_cut(st))
    for it, ft in product(small, ("f32", "f64", "f16")):
        for mode in ("rni", "rzi", "rmi", "rpi"):
            yield Instruction(f"cvt.{mode}.{it}.{ft} d, a;", max(_width(it), 16), (_width(ft),))
        for mode in RN_MODES:
            yield Instruction(f"cvt.{mode}.{ft}.{it} d, a;", _width(ft), (max(_width(it), 16),), setup=_cut(it))
    for it in ("s32", "u32", "s64"):
        yield Instruction(f"cvt.rzi.ftz.{it}.f32 d, a;", _width(it), (32,))
        yield Instruction(f"cvt.rni.sat.{it}.f32 d, a;", _width(it), (32,))
    for mode in ("rni", "rzi", "rmi", "rpi"):
        for t in ("f32", "f64", "f16"):
            yield Instruction(f"cvt.{mode}.{t}.{t} d, a;", _width(t), (_width(t),))
        yield Instruction(f"cvt.{mode}.ftz.f32.f32 d, a;", 32, (32,))
    for mode in RN_MODES:
        yield Instruction(f"cvt.{mode}.f32.f64 d, a;", 32, (64,))
        yield Instruction(f"cvt.{mode}.ftz.f32.f64 d, a;", 32, (64,))
        yield Instruction(f"cvt.{mode}.sat.f32.f64 d, a;", 32, (64,))
        yield Instruction(f"cvt.{mode}.f16.f32 d, a;", 16, (32,))
        yield Instruction(f"cvt.{mode}.ftz.f16.f32 d, a;", 16, (32,))
        yield Instruction(f"cvt.{mode}.sat.f16.f32 d, a;", 16, (32,))
        yield Instruction(f"cvt.{mode}.f16.f64 d, a;", 16, (64,))
    for wide, narrow in (("f64", "f32"), ("f32", "f16"), ("f64", "f16"), ("f32", "bf16")):
        yield Instruction(f"cvt.{wide}.{narrow} d, a;", _width(wide), (_width(narrow),))
    yield Instruction("cvt.ftz.f64.f32 d, a;", 64, (32,))
    for mode, relu in product(("rn", "rz"), ("", ".relu")):
        yield Instruction(f"cvt.{mode}{relu}.bf16.f32 d, a;", 16, (32,))
        yield Instruction(f"cvt.{mode}{relu}.f16x2.f32 d, a, b;", 32, (32, 32))
        yield Instruction(f"cvt.{mode}{relu}.bf16x2.f32 d, a, b;", 32, (32, 32))
        yield Instruction(f"cvt.{mode}{relu}.tf32.f32 d, a;", 32, (32,))
    yield Instruction("cvt.rna.tf32.f32 d, a;", 32, (32,))
    for t, relu in product(("e4m3x2", "e5m2x2"), ("", ".relu")):
        yield Instruction(f"cvt.rn.satfinite{relu}.{t}.f32 d, a, b;", 16, (32, 32))
        yield Instruction(f"cvt.rn.satfinite{relu}.{t}.f16x2 d, a;", 16, (32,))
        yield Instruction(f"cvt.rn{relu}.f16x2.{t} d, a;", 32, (16,))
    for dt, st in product(("s8", "u8", "s16", "u16"), ("s32",)):
        if dt in ("s16", "u16"):
            yield Instruction(f"cvt.pack.sat.{dt}.{st} d, a, b;", 32, (32, 32))
        else:
            yield Instruction(f"cvt.pack.sat.{dt}.{st}.b32 d, a, b, c;", 32, (32, 32, 32))


def _holds(wide: str, narrow: str) -> bool:
    """Whether integer type ``wide`` holds every value of ``narrow``."""
    value_bits = _width(wide) - (wide[0] == "s")
    return (wide[0] == "s" or narrow[0] == "u") and value_bits >= _width(narrow) - (narrow[0] == "s")


def _cut(type_name: str) -> str:
    """Bring a register that is wider than an 8-bit source type to a value of that type, which is all PTX defines."""
    return {"u8": "and.b16 a, a, 0xff;", "s8": "shl.b16 a, a, 8;\nshr.s16 a, a, 8;"}.get(type_name, "")


def _warp() -> Iterator[Instruction]:
    for mode, clamp in (("up", 0), ("down", 31), ("bfly", 31), ("idx", 31), ("idx", 0x181F), ("down", 0x181F), ("up", 0x1800)):
        text = f"shfl.sync.{mode}.b32 d|p, a, b, {clamp}, 0xffffffff;\n@!p xor.b32 d, d, 0x5555;"
        yield Instruction(text, 32, (32, 32), setup="and.b32 b, b, 31;")
    for mode in ("all", "any", "uni"):
        yield Instruction(f"setp.gt.s32 p, a, 0;\nvote.sync.{mode}.pred q, p, 0xffffffff;\nselp.b32 d, 1, 0, q;", 32, (32,))
    yield Instruction("setp.gt.s32 p, a, 0;\nvote.sync.ballot.b32 d, p, 0xffffffff;", 32, (32,))
    for w in (32, 64):
        yield Instruction(f"match.any.sync.b{w} d, a, 0xffffffff;", 32, (w,), setup=f"and.b{w} a, a, 3;")
        yield Instruction(f"match.all.sync.b{w} d|p, a, 0xffffffff;\n@p xor.b32 d, d, 0x5555;", 32, (w,), setup=f"and.b{w} a, a, 1;")
    for op, t in (
        ("add", "u32"),
        ("min", "u32"),
        ("max", "u32"),
        ("add", "s32"),
        ("min", "s32"),
        ("max", "s32"),
        ("and", "b32"),
        ("or", "b32"),
        ("xor", "b32"),
    ):
        yield Instruction(f"redux.sync.{op}.{t} d, a, 0xffffffff;", 32, (32,))
    yield Instruction("activemask.b32 d;", 32, ())
    yield Instruction("mov.u32 d, %lanemask_lt;", 32, ())
    yield Instruction("elect.sync _|p, 0xffffffff;\nselp.b32 d, 1, 0, p;", 32, ())


def _atomics() -> Iterator[Instruction]:
    """Each thread works on a word of its own: the result is the old value, xor the new one shifted to the left."""
    operations = [("add", t) for t in ("u32", "s32", "u64", "f32", "f64")]
    operations += [(op, t) for op in ("min", "max") for t in ("u32", "s32", "u64", "s64")]
    operations += [(op, t) for op in ("and", "or", "xor", "exch") for t in ("b32", "b64")] + [("inc", "u32"), ("dec", "u32")]
    for op, t in operations:
        w = _width(t)
        for space in ("shared", "global"):
            text = f"atom.{space}.{op}.{t} d, [{space}_word], b;\nld.{space}.b{w} a, [{space}_word];\nshl.b{w} a, a, 1;\nxor.b{w} d, d, a;"
            yield Instruction(text, w, (w, w), setup=f"st.{space}.b{w} [{space}_word], a;")
    for w in (16, 32, 64):
        text = f"atom.shared.cas.b{w} d, [shared_word], b, c;\nld.shared.b{w} a, [shared_word];\nshl.b{w} a, a, 1;\nxor.b{w} d, d, a;"
        yield Instruction(text, w, (w, w, w), setup=f"and.b{w} a, a, 3;\nand.b{w} b, b, 3;\nst.shared.b{w} [shared_word], a;")


_TRUTH = "selp.b32 d, 1, 0, p;"


def _predicates() -> Iterator[Instruction]:
    two = "setp.gt.s32 p, a, 0;\nsetp.gt.s32 q, b, 0;"
    for op in ("and", "or", "xor"):
        yield Instruction(f"{two}\n{op}.pred p, p, q;\n{_TRUTH}", 32, (32, 32))
        if op != "xor":
            yield Instruction(f"setp.gt.s32 q, c, 0;\nlop3.{op}.b32 d|p, a, b, c, 0x96, q;\n@p xor.b32 d, d, 0x5555;", 32, (32, 32, 32))
        yield Instruction(f"setp.gt.s32 q, c, 0;\nsetp.lt.{op}.f32 p, a, b, q;\n{_TRUTH}", 32, (32, 32, 32))
        yield Instruction(f"setp.gt.s32 q, c, 0;\nsetp.hi.{op}.u32 p, a, b, !q;\n{_TRUTH}", 32, (32, 32, 32))
        yield Instruction(f"setp.gt.s32 q, c, 0;\nset.lt.{op}.u32.f32 d, a, b, q;", 32, (32, 32, 32))
    yield Instruction(f"setp.gt.s32 q, a, 0;\nnot.pred p, q;\n{_TRUTH}", 32, (32,))
    yield Instruction(f"setp.gt.s32 q, a, 0;\nmov.pred p, q;\n{_TRUTH}", 32, (32,))
    for compare, w in product(("eq", "ne"), (16, 32, 64)):
        yield Instruction(f"setp.{compare}.b{w} p, a, b;\n{_TRUTH}", 32, (w, w))
    for t in ("f16x2", "bf16x2"):
        yield Instruction(f"setp.lt.{t} p|q, a, b;\n{_TRUTH}\n@q add.u32 d, d, 2;", 32, (32, 32))
    for t in ("f16", "bf16", "f16x2", "bf16x2"):
        yield Instruction(f"set.lt.{t}.{t} d, a, b;", _width(t), (_width(t),) * 2)
    for t in ("f16", "bf16"):
        yield Instruction(f"set.geu.u32.{t} d, a, b;", 32, (16, 16))


def _further_forms() -> Iterator[Instruction]:
    """Default roundings, shifts of untyped bits, packed integers, half precision with .ftz, and bf16 conversions."""
    for t in ("f32", "f64"):
        yield _same("mad.rn", t, 3)
        for op in ("add", "sub", "mul"):
            yield _same(op, t, 2)
    for w in (16, 32, 64):
        yield Instruction(f"shr.b{w} d, a, b;", w, (w, 32))
    for op, t in product(("add", "min", "max"), ("u16x2", "s16x2")):
        yield Instruction(f"{op}.{t} d, a, b;", 32, (32, 32))
    for op in ("min", "max"):
        yield Instruction(f"{op}.relu.s32 d, a, b;", 32, (32, 32))
        yield Instruction(f"{op}.ftz.f16 d, a, b;", 16, (16, 16))
        yield Instruction(f"{op}.ftz.NaN.f16x2 d, a, b;", 32, (32, 32))
    for op in ("abs", "neg"):
        yield Instruction(f"{op}.ftz.f16 d, a;", 16, (16,))
    yield Instruction("fma.rn.ftz.relu.f16 d, a, b, c;", 16, (16, 16, 16))
    yield Instruction("mad24.hi.sat.s32 d, a, b, c;", 32, (32, 32, 32))
    for t in ("s32", "s64"):
        w = _width(t)
        yield Instruction(f"add.cc.{t} d, a, b;\naddc.{t} d, c, 0;", w, (w, w, w))
        yield Instruction(f"mad.hi.cc.{t} d, a, b, c;\naddc.{t} d, a, 0;", w, (w, w, w))
        yield Instruction(f"add.cc.{t} d, a, b;\nmadc.lo.{t} d, a, b, c;", w, (w, w, w))
    for mode, it in product(("rn", "rz"), ("s32", "u32", "s16", "u64")):
        yield Instruction(f"cvt.{mode}.bf16.{it} d, a;", 16, (_width(it),))
    for mode, it in product(("rzi", "rni"), ("s32", "u32", "s16", "s64")):
        yield Instruction(f"cvt.{mode}.{it}.bf16 d, a;", _width(it), (16,))
    yield Instruction("cvt.rn.relu.f16.f32 d, a;", 16, (32,))
    yield Instruction("cvt.rn.bf16.f16 d, a;", 16, (16,))
    yield Instruction("cvt.rn.bf16.f64 d, a;", 16, (64,))
    yield Instruction("cvt.f64.bf16 d, a;", 64, (16,))


def derive_instructions() -> Iterator[Instruction]:
    """Every spelling in the emulator's syntax table as an instruction of its own, so that none is without a recording."""
    for spelling in find_spellings():
        conversion = re.fullmatch(r"cvt\.sat\.([us]\d+)\.([us]\d+)", spelling.text)
        if conversion and _holds(conversion[1], conversion[2]):  # ptxas refuses .sat where nothing can saturate
            continue
        yield _derive(spelling.text, spelling.operands, spelling.widths)


def _derive(spelling: str, operands: str, widths: dict[str, int]) -> Instruction:
    """Operands are letters of the emulator's syntax table: rows ``d a b c e``, predicates ``P D p q``, a constant ``i``."""
    opcode = spelling.split(".")[0]
    both = opcode == "setp" and not spelling.endswith(("f16", "bf16"))  # those have one result
    names = {"P": "p|q" if both else "p", "D": "d|p", "p": "p", "q": "p", "e": "5", "i": "0xE8"}
    if "P" in operands or "D" in operands:
        names["p"] = "q"
    text = f"{spelling} {', '.join(names.get(letter, letter) for letter in operands)};"
    sources = tuple(widths[letter] for letter in "abc" if letter in operands)
    setup = "".join(f"setp.gt.s32 {names[letter]}, thread, {20 * i + 40};" for i, letter in enumerate(x for x in operands if x in "pq"))
    if opcode in ("addc", "subc", "madc"):
        setup += "add.cc.u32 shared_word, number, 0xffffffff;"  # a carry comes in, but for thread 0
    elif opcode == "cvt":
        setup += _cut(spelling.split(".")[-1])
    width = widths.get("d", 32)
    if "P" in operands:
        text += "\nselp.b32 d, 1, 0, p;" + ("\n@q add.u32 d, d, 2;" if both else "")
    elif "D" in operands:
        text += "\n@p xor.b32 d, d, 0x5555;"
    elif "cc" in spelling.split("."):
        text += "\naddc.u32 shared_word, 0, 0;\n"
        text += "xor.b32 d, d, shared_word;" if width == 32 else "cvt.u64.u32 in2, shared_word;\nxor.b64 d, d, in2;"
    kind, max_ulp, max_abs = _tolerance(spelling)
    return Instruction(text, max(width, 16), sources, kind, max_ulp, max_abs, setup, num_elems=NUM_DERIVED_ELEMS)


def _tolerance(spelling: str) -> tuple[str, int | None, float]:
    """What the ISA grants the approximate instructions: (format, units in the last place, absolute error)."""
    parts = spelling.split(".")
    if "approx" not in parts and "full" not in parts:
        return "bits", None, 0.0
    kind = parts[-1]
    if parts[0] == "tanh":
        return kind, 2, 2.0**-8 if "bf16" in kind else 2.0**-10.987
    return kind, 2**32 if kind == "f64" else 2, 2.0**-22 if parts[0] == "lg2" else 2.0**-20.5 if parts[0] in ("sin", "cos") else 0.0


def make_corpus() -> list[Instruction]:
    """Return every instruction, in a fixed order and without repeats."""
    groups = (
        _integers,
        _bits,
        _carries,
        _float_arithmetic,
        _half_arithmetic,
        _approximate,
        _comparisons,
        _conversions,
        _warp,
        _atomics,
        _predicates,
        _further_forms,
    )
    written = {i.name: i for group in groups for i in group()}
    covered = {i.text.split(";")[0].split()[0] for i in written.values()}
    derived = (i for i in derive_instructions() if i.text.split()[0] not in covered)
    return [*written.values(), *({i.name: i for i in derived if i.name not in written}.values())]


def make_inputs() -> NDArray[np.uint64]:
    """Return three rows of ``NUM_ELEMS`` patterns: specials of all widths against each other, small integers, and random bits."""
    rng = np.random.default_rng(SEED)
    f16 = [0, 0x8000, 0x3C00, 0xBC00, 0x7C00, 0xFC00, 0x7E00, 0x7C01, 0x0001, 0x03FF, 0x0400, 0x7BFF, 0x3C01, 0x4248]
    f32 = [
        0,
        1 << 31,
        0x3F800000,
        0xBF800000,
        0x7F800000,
        0xFF800000,
        0x7FC00000,
        0x7F800001,
        1,
        0x7FFFFF,
        0x00800000,
        0x7F7FFFFF,
        0x33800000,
    ]
    f32 += [
        0x3F000000,
        0x3FC00000,
        0x40200000,
        0xC0200000,
        0x4F000000,
        0xCF000000,
        0x4F800000,
        0x5F000000,
        0x477FE000,
        0x47800000,
        0x38800000,
    ]
    f64 = [
        0,
        1 << 63,
        0x3FF << 52,
        0xBFF << 52,
        0x7FF << 52,
        0xFFF << 52,
        0x7FF8 << 48,
        1,
        (1 << 52) - 1,
        1 << 52,
        0x7FEFFFFFFFFFFFFF,
        0x41E << 52,
    ]
    f64 += [
        0x3FE << 52,
        0x43E << 52,
        0x47EFFFFFE0000000,
        0x47EFFFFFF0000000,
        0x380 << 52,
        0x36A0000000000000,
        0x3FF0000010000000,
        0x4004000000000000,
    ]
    integers = [1, 2, 3, 7, 31, 32, 33, 63, 64, 127, 128, 255, 256, 32767, 32768, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1]
    specials = np.array([v | v << 16 | v << 32 for v in f16] + [v | v << 32 for v in f32] + f64 + integers, dtype=np.uint64)
    rows = np.empty((3, NUM_ELEMS), np.uint64)
    for row in rows:
        row[:] = rng.choice(specials, NUM_ELEMS)
        random = rng.integers(0, 2**64, NUM_ELEMS, dtype=np.uint64)
        kind = rng.integers(0, 8, NUM_ELEMS)
        row[kind >= 5] = random[kind >= 5]
        # floats of everyday size, where rounding and not a special case decides
        everyday = rng.standard_normal(NUM_ELEMS).astype(np.float32)
        pattern = everyday.view(np.uint32).astype(np.uint64)
        row[kind == 4] = (pattern | pattern << np.uint64(32))[kind == 4]
        row[kind == 3] = everyday.astype(np.float64).view(np.uint64)[kind == 3]
        half = everyday.astype(np.float16).view(np.uint16).astype(np.uint64)
        row[kind == 2] = (half | half << np.uint64(16))[kind == 2]
    return rows


_LOAD = {16: "cvt.u16.u64 {r}, {s};", 32: "cvt.u32.u64 {r}, {s};", 64: "mov.b64 {r}, {s};"}
_STORE = {16: "cvt.u64.u16 result, d;", 32: "cvt.u64.u32 result, d;", 64: "mov.b64 result, d;"}
_HEADER = ".version 9.0\n.target sm_90a\n.address_size 64\n"
# a b c: one 64-bit pattern each for every thread; the instruction sees them cut to its width, in a scope of its own.
_KERNEL = """.visible .entry op_{index}(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pout) {{
.reg .b64 in0, in1, in2, out, at, result, shared_base;
.reg .b32 thread, number, shared_word;
.shared .align 8 .b8 words[{shared_bytes}];
mov.u32 thread, %tid.x;
mov.u32 number, %ctaid.x;
mad.lo.s32 number, number, {block}, thread;
mul.wide.u32 at, number, 8;
ld.param.u64 in0, [pa];
add.s64 in0, in0, at;
ld.global.b64 in0, [in0];
ld.param.u64 in1, [pb];
add.s64 in1, in1, at;
ld.global.b64 in1, [in1];
ld.param.u64 in2, [pc];
add.s64 in2, in2, at;
ld.global.b64 in2, [in2];
ld.param.u64 out, [pout];
add.s64 out, out, at;
mov.u64 shared_base, words;
cvt.u32.u64 shared_word, shared_base;
mad.lo.s32 shared_word, thread, 8, shared_word;
mov.b64 result, 0;
st.shared.b64 [shared_word], result;
st.global.b64 [out], result;
{{
{body}
}}
st.global.b64 [out], result;
ret;
}}
"""


def write_kernel(index: int, instruction: Instruction) -> str:
    """Return the PTX of kernel ``op_<index>(a, b, c, out)``, pointers to ``NUM_ELEMS`` 64-bit patterns each."""
    lines = [f".reg .b{instruction.d} d;", ".reg .pred p, q;", ".reg .f32 p32;", ".reg .b64 global_word;", "mov.b64 global_word, out;"]
    lines += [f".reg .b{w} {r};" for r, w in zip("abc", instruction.sources, strict=False)]
    lines += [_LOAD[w].format(r=r, s=f"in{i}") for i, (r, w) in enumerate(zip("abc", instruction.sources, strict=False))]
    lines += [instruction.setup, instruction.text, _STORE[instruction.d]]
    return _KERNEL.format(index=index, block=BLOCK, shared_bytes=8 * BLOCK, body="\n".join(line for line in lines if line))


def write_module(kernels: list[tuple[int, Instruction]]) -> str:
    """Return a PTX module with one kernel for each of the numbered instructions."""
    return _HEADER + "".join(write_kernel(index, instruction) for index, instruction in kernels)


def pack_results(instructions: list[Instruction], results: NDArray[np.uint64]) -> dict[str, NDArray[np.generic]]:
    """Group results [instructions, elements] by width and number kept, each row cut to them, for a small file."""
    packed: dict[str, NDArray[np.generic]] = {}
    groups = sorted({(instruction.d, instruction.num_elems) for instruction in instructions})
    for number, (width, num_elems) in enumerate(groups):
        rows = [i for i, instruction in enumerate(instructions) if (instruction.d, instruction.num_elems) == (width, num_elems)]
        packed[f"names{number}"] = np.array([instructions[i].name for i in rows])
        packed[f"bits{number}"] = results[rows, :num_elems].astype(f"uint{width}")
    return packed
