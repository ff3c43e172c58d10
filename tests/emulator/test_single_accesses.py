"""An aligned access of up to 16 bytes is one access: a block on another host thread sees all of a store or nothing of it."""

from __future__ import annotations

import numpy as np
import pytest

from .cuda_runtime import Runtime
from .ptx_kernels import run_ptx, text_of

TORN = 32 * 16  # byte offset of the count, behind the words of 32 threads
ROUNDS = 60_000
# Name: the registers of a vector, its elements' type, and what an access says before it.
VECTORS = {
    "v2.u64": (("%rd4", "%rd5"), "v2.u64"),
    "v4.u32": (("%r4", "%r5", "%r6", "%r7"), "v4.u32"),
    "v2.u32": (("%r4", "%r5"), "v2.u32"),
    "v4.u16": (("%h4", "%h5", "%h6", "%h7"), "v4.u16"),
    "v2.u16": (("%h4", "%h5"), "v2.u16"),
    "v4.f32": (("%f4", "%f5", "%f6", "%f7"), "v4.f32"),
    "v2.f64": (("%fd4", "%fd5"), "v2.f64"),
    "b128": (("%q0",), "b128"),
    "u64": (("%rd4",), "u64"),
}
ORDERS = {"weak": ("st.global", "ld.global"), "relaxed": ("st.relaxed.gpu.global", "ld.relaxed.gpu.global"), "generic": ("st", "ld")}


def torn_kernel(vector: str, order: str, divergent: bool) -> str:
    """Block 0 stores vectors of equal elements, block 1 loads them and counts those whose halves differ."""
    registers, kind = VECTORS[vector]
    store, load = ORDERS[order]
    cast = {"%rd4": "cvt.u64.u32 {0}, %r2;", "%r4": "mov.u32 {0}, %r2;", "%h4": "cvt.u16.u32 {0}, %r2;", "%f4": "mov.b32 {0}, %r2;"}
    if vector == "b128":
        make, compare = "cvt.u64.u32 %rd4, %r2; mov.b128 %q0, {%rd4, %rd4};", "mov.b128 {%rd5, %rd6}, %q0; setp.ne.u64 %p2, %rd5, %rd6;"
    elif vector == "u64":
        make = "cvt.u64.u32 %rd4, %r2; shl.b64 %rd6, %rd4, 32; or.b64 %rd4, %rd4, %rd6;"
        compare = "mov.b64 {%r4, %r5}, %rd4; setp.ne.u32 %p2, %r4, %r5;"
    else:
        form = cast.get(registers[0], "cvt.u64.u32 %rd4, %r2; mov.b64 {0}, %rd4;")
        make = "".join(form.replace("{0}", register) for register in registers)
        bits = kind.split(".")[1][1:]
        compare = f"setp.ne.b{bits} %p2, {registers[0]}, {registers[-1]};"
    listed = "{" + ", ".join(registers) + "}" if len(registers) > 1 else registers[0]
    leave = "setp.eq.u32 %p3, %r0, 5; @%p3 bra END;" if divergent else ""
    return text_of(f"""
    mov.u32 %r1, %ctaid.x; setp.ne.u32 %p0, %r1, 0; mov.u32 %r3, 0; mov.u32 %r2, 0;
    mul.wide.u32 %rd1, %r0, 16; add.u64 %rd2, %rd0, %rd1; cvta.global.u64 %rd7, %rd2;
    {leave}
    @%p0 bra READ;
WRITE:
    add.u32 %r2, %r2, 1; {make}
    {store}.{kind} [{"%rd7" if order == "generic" else "%rd2"}], {listed};
    setp.lt.u32 %p1, %r2, {ROUNDS}; @%p1 bra WRITE;
    bra END;
READ:
    add.u32 %r2, %r2, 1;
    {load}.{kind} {listed}, [{"%rd7" if order == "generic" else "%rd2"}];
    {compare} @%p2 add.u32 %r3, %r3, 1;
    setp.lt.u32 %p1, %r2, {ROUNDS}; @%p1 bra READ;
    red.global.add.u32 [%rd0+{TORN}], %r3;
END:
""")


@pytest.mark.parametrize("divergent", [False, True], ids=["whole warp", "without one thread"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("vector", VECTORS)
def test_no_store_is_seen_in_part(emulator: Runtime, vector: str, order: str, divergent: bool) -> None:
    emulator.set_option("workers", 2)
    try:
        result, reports = run_ptx(
            emulator, torn_kernel(vector, order, divergent), np.zeros(TORN // 4 + 4, np.uint32), blocks=2, checks="none"
        )
    finally:
        emulator.set_option("workers", 0)
    assert reports == []
    assert result[TORN // 4] == 0, f"{result[TORN // 4]} of {ROUNDS} x 32 loads saw two halves of different stores"
