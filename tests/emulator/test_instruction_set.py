"""Every instruction that the decoder knows: its spellings load, something checks what it does, and all others are refused by name.

Lane arithmetic has a recording for each spelling (``test_opcodes.py``), matrix products one for each form (``test_tensor_goldens.py``,
``test_tensor_sparse.py``), textures and surfaces one for each kind (``test_texture_goldens.py``).
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from .cuda_runtime import Runtime
from .ptx_kernels import refusal, run_ptx, text_of

HERE = Path(__file__).parent
DECODERS = HERE.parents[1] / "device/emulator/src/exec/decode"
SPELLINGS = (HERE / "opcodes/instructions.txt").read_text(encoding="utf-8").splitlines()
MODULE = """.shared .align 128 .b8 sm[1024];
.func (.param .b32 out) f(.param .b32 in) {
    .reg .b32 %a;
    ld.param.b32 %a, [in];
    add.u32 %a, %a, 1;
    st.param.b32 [out], %a;
    ret;
}"""
FRAME = "{{ .param .b32 p; .param .b32 q; targets: .branchtargets L;\n{}\n}}\nL:"

# Where the effect of each instruction is checked: a file below this folder, and what it says there.
PROOFS = {
    "activemask": ("opcodes/corpus.py", "activemask"),
    "alloca": ("test_alloca.py", "alloca.u64"),
    "applypriority": ("test_instruction_set.py", "applypriority.global.L2::evict_normal"),
    "atom": ("test_atomics.py", "atom."),
    "bar": ("test_instruction_set.py", "bar.red.popc.u32"),
    "barrier": ("test_instruction_set.py", "barrier.arrive"),
    "bra": ("kernels.cu", "for ("),
    "brkpt": ("test_instruction_set.py", "brkpt;"),
    "brx": ("test_instruction_set.py", "brx.idx"),
    "call": ("debug.cu", "fibonacci"),
    "cp": ("bulk.cu", "cp.async.bulk"),
    "createpolicy": ("bulk.cu", "createpolicy"),
    "cvta": ("ptx_kernels.py", "cvta.to.global"),
    "discard": ("test_instruction_set.py", "discard.global.L2"),
    "elect": ("opcodes/corpus.py", "elect"),
    "exit": ("test_instruction_set.py", "exit;"),
    "fence": ("mutations/corpus.cu", "fence.proxy"),
    "getctarank": ("cluster.cu", "getctarank"),
    "griddepcontrol": ("test_instruction_set.py", "griddepcontrol.wait"),
    "isspacep": ("cluster.cu", "isspacep"),
    "istypep": ("texture.cu", "istypep"),
    "ld": ("ptx_kernels.py", "ld.param"),
    "ldmatrix": ("tensor_kernels.cu", "ldmatrix"),
    "ldu": ("test_instruction_set.py", "ldu.global"),
    "mapa": ("cluster.cu", "mapa"),
    "match": ("kernels.cu", "__match_any_sync"),
    "mbarrier": ("mbarrier.cu", "mbarrier.arrive"),
    "membar": ("test_instruction_set.py", "membar.gl"),
    "mma": ("opcodes/tensor_corpus.py", "mma"),
    "mov": ("opcodes/corpus.py", "mov"),
    "movmatrix": ("tensor_kernels.cu", "movmatrix"),
    "nanosleep": ("cluster.cu", "nanosleep"),
    "pmevent": ("test_instruction_set.py", "pmevent"),
    "prefetch": ("test_instruction_set.py", "prefetch.global.L1"),
    "prefetchu": ("test_instruction_set.py", "prefetchu.L1"),
    "red": ("test_atomics.py", "red."),
    "redux": ("opcodes/corpus.py", "redux"),
    "ret": ("debug.cu", "return"),
    "setmaxnreg": ("tensor_kernels.cu", "setmaxnreg"),
    "shfl": ("kernels.cu", "__shfl_"),
    "st": ("ptx_kernels.py", "buffer"),
    "stackrestore": ("test_alloca.py", "stackrestore.u64"),
    "stacksave": ("test_alloca.py", "stacksave.u64"),
    "stmatrix": ("tensor_kernels.cu", "stmatrix"),
    "suld": ("textures/cases.cu", "suld.b"),
    "suq": ("texture.cu", "suq"),
    "sured": ("textures/cases.cu", "sured.p"),
    "sust": ("textures/cases.cu", "sust.p"),
    "tensormap": ("bulk.cu", "tensormap.replace"),
    "tex": ("textures/cases.cu", "tex2D<T>"),
    "tld4": ("textures/cases.cu", "tex2Dgather"),
    "trap": ("kernels.cu", "__trap"),
    "txq": ("texture.cu", "txq"),
    "vote": ("kernels.cu", "__ballot_sync"),
    "wgmma": ("opcodes/tensor_corpus.py", "wgmma.mma_async"),
    "wmma": ("tensor_kernels.cu", "wmma"),
}


def find_opcodes() -> set[str]:
    """The opcodes that a decoder asks for by name; lane arithmetic is in a table of its own."""
    text = "".join(path.read_text(encoding="utf-8") for path in DECODERS.glob("*.cpp"))
    return set(re.findall(r'opcode [!=]= "([a-z0-9]+)"', text))


def test_every_instruction_has_spellings_and_a_proof() -> None:
    spelled = {re.sub(r"^@\S+ ", "", line).split(".")[0].split()[0].rstrip(";") for line in SPELLINGS}
    assert find_opcodes() - spelled == set(), "add spellings to opcodes/instructions.txt"
    assert find_opcodes() - PROOFS.keys() == set(), "say where the instruction's effect is checked"
    for opcode, (file, text) in PROOFS.items():
        assert text in (HERE / file).read_text(encoding="utf-8"), f"{opcode}: {file} says no {text}"


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_loads(emulator: Runtime, spelling: str) -> None:
    assert not refusal(emulator, text_of(FRAME.format(spelling), module=MODULE, version="9.0"))


REFUSED = [
    "ld.global.v8.u32 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [%rd0];",
    "st.bulk.weak.shared::cta [%rd1], 64, 0;",
    "multimem.red.global.add.u32 [%rd0], %r1;",
    "multimem.st.global.u32 [%rd0], %r1;",
    "multimem.cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1], 64;",
    "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %q1;",
    "tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p1;",
    "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1,%r2}, [%r5];",
    "mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e3m2.e2m1.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r1,%r2}, {%f1,%f2,%f3,%f4};",
    "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2,%r2,%r2,%r2,%r2}], [%r3];",
    "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.cta_group::2 [%r1], [%rd1, {%r2,%r2}], [%r3];",
    "cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd0], [%r1], 64, %h1;",
    "shfl.idx.b32 %r1, %r2, 0, 31;",
    "vote.ballot.b32 %r1, %p1;",
    "vadd.s32.u32.s32 %r1, %r2, %r3;",
    "vset4.u32.u32.eq %r1, %r2, %r3, %r4;",
    "tex.2d.v2.f16x2.f32 {%r1,%r2}, [%rd1, {%f1,%f2}];",
    "tld4.g.cube.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f1,%f2,%f3,%f4}];",
    "txq.channel_data_type.b32 %r1, [%rd1];",
    "istypep.samplerref %p1, %rd1;",
    "fma.rn.oob.f16 %h1, %h2, %h3, %h4;",
    "fence;",
    "madeup.u32 %r1, %r2;",
]


@pytest.mark.parametrize("spelling", REFUSED)
def test_what_is_refused_is_named(emulator: Runtime, spelling: str) -> None:
    said = refusal(emulator, text_of(spelling, version="9.0"))
    assert f"unsupported instruction '{spelling.split()[0].rstrip(';')}'" in said


INDEX = "mad.wide.u32 %rd1, %r0, 4, %rd0;\n"


def test_branches_by_table_end_or_go_on(emulator: Runtime) -> None:
    body = f"""{INDEX}and.b32 %r1, %r0, 3;
brx.idx %r1, targets;
targets: .branchtargets L0, L1, L2, L3;
L0: mov.u32 %r2, 10; bra.uni done;
L1: mov.u32 %r2, 11; bra done;
L2: exit;
L3: mov.u32 %r2, 13;
done: st.global.u32 [%rd1], %r2;"""
    values, reports = run_ptx(emulator, text_of(body), np.full(32, 7, np.uint32))
    assert reports == [] and values.tolist() == [10, 11, 7, 13] * 8


def test_barriers_that_reduce_and_that_only_arrive(emulator: Runtime) -> None:
    """Two warps: the first counts and combines with the second, then hands a value over by a named barrier."""
    body = f"""{INDEX}setp.lt.u32 %p1, %r0, 40;
bar.red.popc.u32 %r1, 0, %p1;
bar.red.and.pred %p2, 1, 64, %p1;
barrier.cta.red.or.pred %p3, 2, !%p1;
selp.u32 %r2, 100, 0, %p2;
selp.u32 %r3, 200, 0, %p3;
add.u32 %r1, %r1, %r2;
add.u32 %r1, %r1, %r3;
setp.ge.u32 %p4, %r0, 32;
@%p4 bra second;
mov.u32 %r4, sm;
mad.lo.u32 %r4, %r0, 4, %r4;
st.shared.u32 [%r4], %r0;
barrier.arrive 3, 64;
bra done;
second: sub.u32 %r5, %r0, 32;
mov.u32 %r4, sm;
mad.lo.u32 %r4, %r5, 4, %r4;
barrier.sync 3, 64;
ld.shared.u32 %r6, [%r4];
add.u32 %r1, %r1, %r6;
done: st.global.u32 [%rd1], %r1;"""
    values, reports = run_ptx(emulator, text_of(body, module=MODULE), np.zeros(64, np.uint32), threads=64)
    assert reports == []
    assert values.tolist() == [240] * 32 + [240 + i for i in range(32)]


def test_hints_change_nothing(emulator: Runtime) -> None:
    body = f"""{INDEX}griddepcontrol.wait;
prefetch.global.L1 [%rd1];
prefetchu.L1 [%rd1];
applypriority.global.L2::evict_normal [%rd0], 128;
pmevent 3;
membar.gl;
ldu.global.u32 %r1, [%rd1];
add.u32 %r1, %r1, %r0;
st.global.u32 [%rd1], %r1;
griddepcontrol.launch_dependents;"""
    values, reports = run_ptx(emulator, text_of(body), np.arange(32, dtype=np.uint32))
    assert reports == [] and values.tolist() == [2 * i for i in range(32)]


def test_breakpoints_end_the_launch(emulator: Runtime) -> None:
    values, reports = run_ptx(emulator, text_of("setp.eq.u32 %p1, %r0, 5;\n@%p1 brkpt;"), np.zeros(32, np.uint32))
    assert not len(values)
    assert [(report["kind"], report["thread"]) for report in reports] == [("breakpoint", [5, 0, 0])]


def test_what_is_stored_after_a_discard_stands(emulator: Runtime) -> None:
    body = f"{INDEX}discard.global.L2 [%rd0], 128;\nst.global.u32 [%rd1], %r0;\nld.global.u32 %r1, [%rd1];"
    assert run_ptx(emulator, text_of(body), np.zeros(32, np.uint32))[1] == []
