"""Reading a disassembly: instructions, lines, loops, classes and widths, from a text of nvdisasm's form."""

from __future__ import annotations

import pytest

from harness.build.sass import CLASSES, SassInstruction, parse_sass

TEXT = """\t.target\tsm_90a

.text._Z1kPf:
\t//## File "/src/k.cu", line 7 inlined at "/src/k.cu", line 20
\t//## File "/src/k.cu", line 20
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_0:
\t//## File "/src/k.cu", line 9
        /*0010*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0020*/                   LDG.E.128 R8, desc[UR4][R2.64+0x10] ;
\t//## File "/src/k.cu", line 10
        /*0030*/                   FFMA R0, R4, R9, R0 ;
        /*0040*/              @!P0 LDS.64 R12, [R3] ;
        /*0050*/                   HMMA.16816.F32 R4, R4, R8, RZ ;
        /*0060*/               @P1 BRA `(.L_x_0) ;
\t//## File "/src/k.cu", line 12
        /*0070*/                   STG.E.U16 desc[UR4][R2.64], R0 ;
        /*0080*/                   EXIT ;
.L_x_1:
        /*0090*/                   BRA `(.L_x_1);
        /*00a0*/                   NOP;
.text._Z1jv:
        /*0000*/                   EXIT ;
"""


def test_kernels_instructions_and_lines_are_read() -> None:
    k, j = parse_sass(TEXT)
    assert (k.name, j.name) == ("_Z1kPf", "_Z1jv")
    assert [i.line for i in k.instructions[:5]] == [7, 9, 9, 10, 10]
    assert k.instructions[4].guard == "@!P0" and k.instructions[4].base == "LDS"
    assert k.instructions[1].source == "k.cu:9"
    assert j.instructions[0].source == ""


def test_mix_and_widths_count_what_is_there() -> None:
    k = parse_sass(TEXT)[0]
    assert k.mix == {"fp32": 1, "tensor": 1, "global": 3, "shared": 1, "constant": 1, "control": 3}
    assert k.widths == {"LDG.128": 2, "LDS.64": 1, "STG.16": 1}
    assert k.opcodes["LDG"] == 2 and "NOP" not in k.opcodes


def test_loops_are_branches_backward_and_the_last_one_to_itself_is_none() -> None:
    k = parse_sass(TEXT)[0]
    assert k.loops == ((0x10, 0x60),)
    assert [k.find_depth(a) for a in (0, 0x10, 0x60, 0x70)] == [0, 1, 1, 0]


def test_a_warp_alone_waits_for_results_and_for_global_loads() -> None:
    stalls = parse_sass(TEXT)[0].stalls
    assert [s.waits_for_global for s in stalls[:5]] == [False, False, False, True, False]
    assert stalls[4].clocks == 1
    chain = parse_sass(
        TEXT.replace("@!P0 LDS.64 R12, [R3]", "MUFU.EX2 R12, R0").replace("HMMA.16816.F32 R4, R4, R8, RZ", "FADD R4, R12, R12")
    )
    assert [s.clocks for s in chain[0].stalls[4:6]] == [4, 20]


def test_two_loads_that_depend_on_each_other_are_two_waits() -> None:
    apart = TEXT.replace("LDG.E.128 R8, desc[UR4][R2.64+0x10]", "LDG.E.128 R8, desc[UR4][R4.64]")
    assert sum(s.waits_for_global for s in parse_sass(TEXT)[0].stalls) == 1
    assert sum(s.waits_for_global for s in parse_sass(apart)[0].stalls) == 2


@pytest.mark.parametrize(
    ("opcode", "kind", "width"),
    [
        ("HGMMA.64x128x16.F32.BF16", "tensor", 0),
        ("UTMALDG.2D", "bulk", 0),
        ("LDGSTS.E.BYPASS.128", "global", 128),
        ("LDL.64", "local", 64),
        ("STS.U8", "shared", 8),
        ("IMAD.WIDE", "imad", 0),
        ("UIADD3", "uniform", 0),
        ("LOP3.LUT", "integer", 0),
        ("MUFU.EX2", "special", 0),
        ("F2I.FTZ.U32", "conversion", 0),
    ],
)
def test_classes_and_widths(opcode: str, kind: str, width: int) -> None:
    inst = SassInstruction(0, "", opcode, "R0")
    assert (inst.kind, inst.width_bits) == (kind, width)
    assert inst.kind in CLASSES
