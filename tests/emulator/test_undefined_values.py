"""A value that nothing wrote is reported where it matters: carried along and dropped it is none, deciding or stored it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ctypes import c_void_p

import numpy as np
import pytest

from .cuda_runtime import Args, Runtime

# Each body may use %r0 (thread), %rd0 (out), %r1 = an unwritten word of shared memory, %r2 = one that this thread wrote, %rs1 (16 bits).
BODIES = {
    "dropped": "st.shared.u32 [%r9+256], %r1;\n st.global.u32 [%rd0], %r2;",
    "not_chosen": "setp.lt.u32 %p1, %r0, 64;\n selp.b32 %r3, %r2, %r1, %p1;\n st.global.u32 [%rd0], %r3;",
    "hidden_by_false": """setp.gt.u32 %p1, %r0, 64;
        setp.eq.s32 %p2, %r1, 7;
        and.pred %p3, %p1, %p2;
        @%p3 st.global.u32 [%rd0], %r2;""",
    "hidden_by_mask": "and.b32 %r3, %r1, 0;\n st.global.u32 [%rd0], %r3;",
    # one byte is written, the rest is padding; the written one is taken out in three ways
    "padding": """st.shared.u8 [%r9+128], %r2;
        ld.shared.u32 %r3, [%r9+128];
        and.b32 %r4, %r3, 255;
        cvt.u16.u32 %rs1, %r3;
        shl.b32 %r5, %r3, 24;
        shr.u32 %r5, %r5, 24;
        prmt.b32 %r6, %r3, 0, 0x4440;
        add.u32 %r4, %r4, %r5;
        add.u32 %r4, %r4, %r6;
        st.global.u32 [%rd0], %r4;
        st.global.u8 [%rd0+3], %rs1;""",
    "shuffled_away": """shfl.sync.up.b32 %r3, %r1, 1, 0, -1;
        mov.u32 %r3, %r2;
        st.global.u32 [%rd0], %r3;""",
    "through_shared": """st.shared.u32 [%r9+256], %r1;
        ld.shared.u32 %r3, [%r9+256];
        st.global.u32 [%rd0], %r3;""",
    "stored": "st.global.u32 [%rd0], %r1;",
    "decides": "setp.eq.s32 %p1, %r1, 7;\n @%p1 bra DONE;\n st.global.u32 [%rd0], %r2;",
    "computed": "add.u32 %r3, %r1, %r2;\n mul.lo.u32 %r3, %r3, 3;\n st.global.u32 [%rd0], %r3;",
    "chosen": "setp.lt.u32 %p1, %r0, 64;\n selp.b32 %r3, %r1, %r2, %p1;\n st.global.u32 [%rd0], %r3;",
    "not_hidden": """setp.lt.u32 %p1, %r0, 64;
        setp.eq.s32 %p2, %r1, 7;
        and.pred %p3, %p1, %p2;
        @%p3 st.global.u32 [%rd0], %r2;""",
    "padding_used": """st.shared.u8 [%r9+128], %r2;
        ld.shared.u32 %r3, [%r9+128];
        shr.u32 %r3, %r3, 8;
        st.global.u32 [%rd0], %r3;""",
    "shuffled_on": "shfl.sync.bfly.b32 %r3, %r1, 1, 31, -1;\n st.global.u32 [%rd0], %r3;",
    "address": "and.b32 %r3, %r1, 4;\n ld.shared.u32 %r4, [%r3+1024];\n st.global.u32 [%rd0], %r2;",
    "added_atomically": "red.global.add.u32 [%rd0], %r1;",
}
HARMLESS = ("dropped", "not_chosen", "hidden_by_false", "hidden_by_mask", "padding", "shuffled_away")
FAULTS = tuple(name for name in BODIES if name not in HARMLESS)

KERNEL = """
.visible .entry {name}(.param .u64 out)
{{
    .reg .b64 %rd<4>;
    .reg .b32 %r<16>;
    .reg .b16 %rs<4>;
    .reg .pred %p<4>;
    .shared .align 16 .b8 tile[1024];
    ld.param.u64 %rd1, [out];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd2, %r0, 4;
    add.u64 %rd0, %rd1, %rd2;
    shl.b32 %r8, %r0, 2;
    mov.u32 %r9, tile;
    add.u32 %r9, %r9, %r8;
    st.shared.u32 [%r9+512], %r0;
    ld.shared.u32 %r2, [%r9+512];
    ld.shared.u32 %r1, [%r9];
    {body}
DONE:
    ret;
}}
"""


@pytest.fixture(scope="module")
def source() -> str:
    return ".version 8.0\n.target sm_80\n.address_size 64\n" + "".join(KERNEL.format(name=n, body=b) for n, b in BODIES.items())


@pytest.fixture
def checked(emulator: Runtime, source: str) -> Iterator[tuple[Runtime, int]]:
    library = emulator.load(source)
    emulator.set_option("checks", "all")
    yield emulator, library
    emulator.set_option("checks", "none")


def run(cuda: Runtime, library: int, name: str) -> list[dict[str, object]]:
    out = cuda.alloc(np.zeros(64, np.uint32))
    assert cuda.launch(cuda.kernel(library, name), Args(c_void_p(out)), block=(32, 1, 1)) == 0
    cuda.call("cudaDeviceSynchronize")
    cuda.call("cudaFree", out)
    return [r for r in cuda.reports() if r["severity"] == "error"]


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_loaded_and_dropped_is_no_finding(checked: tuple[Runtime, int], name: str) -> None:
    assert run(*checked, name) == []


@pytest.mark.parametrize("name", FAULTS)
def test_what_decides_or_is_stored_is_reported_at_its_load(checked: tuple[Runtime, int], name: str, source: str) -> None:
    report, *_ = run(*checked, name)
    assert report["kind"] == "uninitialized_read"
    assert "ld.shared" in source.splitlines()[int(str(report["ptx_line"])) - 1]
    assert re.search(r"its value matters at PTX line \d+", str(report["text"]))
