"""Atomics and reductions of 16 to 128 bits, of vectors and packed halves, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from .cuda_runtime import Runtime
from .ptx_kernels import refusal, run_ptx, text_of


def _run(cuda: Runtime, body: str, values: NDArray[Any], threads: int = 32) -> NDArray[Any]:
    result, reports = run_ptx(cuda, text_of(body), values, threads)
    assert reports == []
    return result


def _bf16(values: NDArray[Any]) -> NDArray[np.uint16]:
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize("opcode", ["red", "atom"])
@pytest.mark.parametrize("length", [2, 4])
def test_vectors_of_f32(emulator: Runtime, opcode: str, length: int) -> None:
    operands = ", ".join(f"%f{i}" for i in range(length))
    results = "{" + ", ".join(f"%f{8 + i}" for i in range(length)) + "}, " if opcode == "atom" else ""
    body = "cvt.rn.f32.u32 %f0, %r0;" + "".join(f"add.f32 %f{i}, %f{i - 1}, 0f3F800000;" for i in range(1, length))
    body += f"{opcode}.global.relaxed.gpu.add.v{length}.f32 {results}[%rd0+16], {{{operands}}};".replace("relaxed.gpu.add", "add")
    result = _run(emulator, body, np.zeros(8, np.float32))
    assert result.tolist() == [0.0] * 4 + [496.0 + 32 * i for i in range(length)] + [0.0] * (4 - length)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("op", ["add", "min", "max"])
def test_vectors_of_halves(emulator: Runtime, kind: str, op: str) -> None:
    start = np.array([5, -3, 7, 100, -8, 0.5, 64, -64], np.float32)
    encode = (lambda v: np.asarray(v, np.float16).view(np.uint16)) if kind == "f16" else _bf16
    body = f"cvt.rn.f32.u32 %f0, %r0; cvt.rn.{kind}.f32 %h0, %f0;"
    body += f"red.global.{op}.noftz.v8.{kind} [%rd0], {{%h0, %h0, %h0, %h0, %h0, %h0, %h0, %h0}};"
    body += f"mov.b32 %r1, {{%h0, %h0}}; red.global.{op}.noftz.v2.{kind}x2 [%rd0+16], {{%r1, %r1}};"
    result = _run(emulator, body, np.concatenate([encode(start), encode(start)]), 4)
    wanted = {"add": start + 6, "min": np.minimum(start, 0), "max": np.maximum(start, 3)}[op]
    assert result[:8].tolist() == encode(wanted).tolist() and result[8:12].tolist() == encode(wanted[:4]).tolist()


def test_minimum_of_halves_takes_the_number_and_the_lower_zero(emulator: Runtime) -> None:
    start = np.array([0x7E00, 0x0000, 0x8000, 0x7E00] * 2, np.uint16)  # NaN, +0, -0, NaN
    body = "mov.b16 %h0, 0x3C00; mov.b16 %h1, 0x8000; mov.b16 %h2, 0x0000; mov.b16 %h3, 0x7E00;"
    for op, offset in (("min", 0), ("max", 8)):
        body += f"red.global.{op}.noftz.v4.f16 [%rd0+{offset}], {{%h0, %h1, %h2, %h3}};"
    assert _run(emulator, body, start, 1).tolist() == [0x3C00, 0x8000, 0x8000, 0x7FFF, 0x3C00, 0x0000, 0x0000, 0x7FFF]


@pytest.mark.parametrize("space", ["global", "shared"])
def test_compare_and_swap_of_128_bits_counts(emulator: Runtime, space: str) -> None:
    # Every thread adds 1 to the lower half and 2 to the upper one, by a loop over cas.
    module = ".shared .align 16 .b8 words[16];" if space == "shared" else ""
    at = "words" if space == "shared" else "%rd0"
    body = f"""
    mov.b64 %rd6, 0;
    mov.b128 %q0, {{%rd6, %rd6}};
    setp.ne.u32 %p1, %r0, 0;
    @%p1 bra start;
    st.{space}.b128 [{at}], %q0;
start:
    bar.sync 0;
    ld.{space}.b128 %q0, [{at}];
    bar.sync 0;
again:
    mov.b128 {{%rd1, %rd2}}, %q0;
    add.u64 %rd3, %rd1, 1;
    add.u64 %rd4, %rd2, 2;
    mov.b128 %q1, {{%rd3, %rd4}};
    atom.{space}.relaxed.gpu.cas.b128 %q2, [{at}], %q0, %q1;
    mov.b128 {{%rd5, %rd6}}, %q2;
    setp.ne.u64 %p0, %rd5, %rd1;
    mov.b128 %q0, %q2;
    @%p0 bra again;
    bar.sync 0;
    ld.{space}.b128 %q3, [{at}];
    bar.sync 0;
    @%p1 bra done;
    st.global.b128 [%rd0+16], %q3;
    mov.b64 %rd7, 77;
    mov.b128 %q4, {{%rd7, %rd7}};
    atom.{space}.exch.b128 %q5, [{at}], %q4;
    st.global.b128 [%rd0+32], %q5;
done:
"""
    result, reports = run_ptx(emulator, text_of(body, module), np.zeros(6, np.uint64), 64)
    assert [r for r in reports if r["severity"] == "error"] == [] and result[2:].tolist() == [64, 128, 64, 128]


def test_compare_and_swap_of_16_bits(emulator: Runtime) -> None:
    body = """
again:
    ld.relaxed.gpu.global.b16 %h0, [%rd0+2];
    add.u16 %h1, %h0, 3;
    atom.global.cas.b16 %h2, [%rd0+2], %h0, %h1;
    setp.ne.b16 %p0, %h2, %h0;
    @%p0 bra again;
"""
    assert _run(emulator, body, np.array([7, 1, 9, 9], np.uint16), 96).tolist() == [7, 1 + 3 * 96, 9, 9]


@pytest.mark.parametrize(
    ("op", "kind", "start", "wanted"),
    [
        ("add", "f64", 0.5, 32.5),
        ("add", "u64", 5, 37),
        ("min", "s64", 5, -1),
        ("max", "u64", 5, 2**64 - 1),
        ("and", "b64", 7, 7),
        ("or", "b64", 8, -1),
        ("xor", "b64", 8, 8),
    ],
)
def test_64_bits(emulator: Runtime, op: str, kind: str, start: float, wanted: float) -> None:
    value = "0d3FF0000000000000" if kind == "f64" else "1" if op == "add" else "-1"
    kinds = {"f64": np.float64, "s64": np.int64}
    dtype = kinds.get(kind, np.uint64)
    result = _run(emulator, f"red.global.{op}.{kind} [%rd0], {value};", np.array([start], dtype))
    assert result[0] == np.array([wanted % 2**64 if dtype is np.uint64 else wanted], dtype)[0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("red.global.add.v8.f32 [%rd0], {%f0, %f0, %f0, %f0, %f0, %f0, %f0, %f0};", "vector form"),
        ("red.shared.add.v2.f32 [%rd0], {%f0, %f0};", "global memory"),
        ("atom.global.add.b128 %q0, [%rd0], %q1;", "128-bit"),
        ("atom.global.max.f32 %f0, [%rd0], %f1;", "floating-point"),
        ("multimem.red.relaxed.gpu.global.add.u32 [%rd0], %r0;", "multimem.red"),
        ("ld.global.v8.f32 {%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, [%rd0];", "need sm_100"),
        ("redux.sync.max.f32 %f0, %f1, -1;", "need sm_100a"),
    ],
)
def test_forms_that_do_not_exist_are_refused_by_name(emulator: Runtime, text: str, reason: str) -> None:
    said = refusal(emulator, text_of(text))
    assert reason in said and text.split()[0] in said
