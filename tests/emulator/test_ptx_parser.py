"""The emulator's PTX parser: on what nvcc writes, on the corners of the grammar, and on damaged text."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from device.toolchain import find_toolchain

FOLDER = Path(__file__).parent
PARSER = FOLDER.parents[1] / "device" / "emulator" / "src" / "ptx"
HEADER = ".version 9.0\n.target sm_90a\n.address_size 64\n"
SEPARATOR = b"\n\x1e\n"

Module = dict[str, Any]
Parse = Callable[..., list[Module]]


@pytest.fixture(scope="module")
def parse(tmp_path_factory: pytest.TempPathFactory) -> Parse:
    """A function that parses any number of texts (str or bytes) in one process, and returns what ptx_tool.cpp prints of each."""
    folder = tmp_path_factory.mktemp("ptx")
    tool = folder / "ptx_tool"
    compiler = shutil.which("g++")
    assert compiler is not None, "the parser's tests need g++"
    whole = folder / "whole.cpp"  # one translation unit: the headers take longer than the rest
    whole.write_text("".join(f'#include "{path}"\n' for path in [*sorted(PARSER.glob("*.cpp")), FOLDER / "ptx_tool.cpp"]))
    command: list[str | Path] = [compiler, "-std=c++20", "-O1", "-D_GLIBCXX_ASSERTIONS", "-I", PARSER, whole, "-o", tool]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr

    def run(*texts: str | bytes) -> list[Module]:
        path = folder / "input.ptx"
        path.write_bytes(SEPARATOR.join(text.encode() if isinstance(text, str) else text for text in texts))
        done = subprocess.run([tool, path], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, f"the parser ended with {done.returncode}: {done.stderr}"
        results = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(results) == len(texts)
        return results

    return run


@pytest.fixture(scope="module")
def sample_text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """PTX of ptx_sample.cu."""
    path = tmp_path_factory.mktemp("sample") / "sample.ptx"
    target = ["-gencode", "arch=compute_90a,code=compute_90a", "-lineinfo"]
    subprocess.run([find_toolchain().nvcc, "-ptx", *target, "-o", path, FOLDER / "ptx_sample.cu"], check=True)
    return path.read_text()


@pytest.fixture(scope="module")
def sample(parse: Parse, sample_text: str) -> Module:
    """ptx_sample.cu, parsed."""
    (module,) = parse(sample_text)
    assert "error" not in module, module
    return module


def by_name(items: list[Module], name: str) -> Module:
    """The item whose name contains `name`; of functions, the one with a body."""
    (found,) = [item for item in items if name in item["name"] and item.get("body", True)]
    return found


def parse_body(parse: Parse, body: str) -> Module:
    """The one function of a module with this body."""
    (module,) = parse(f"{HEADER}.visible .entry f()\n{{\n{body}\n}}\n")
    assert "error" not in module, module
    function: Module = module["functions"][0]
    return function


# ---- What nvcc writes ----


def test_module_of_nvcc(sample: Module, sample_text: str) -> None:
    assert sample["target"] == "sm_90a"
    assert sample["version"][0] >= 9
    assert [f["name"] for f in sample["functions"] if f["entry"]] == ["sample"]
    assert by_name(sample["functions"], "sample")["max_threads"] == [128, 1, 1]
    assert [p["size"] for p in by_name(sample["functions"], "sample")["params"]] == [8, 8, 4]
    (printf,) = [f for f in sample["functions"] if f["name"] == "vprintf"]
    assert not printf["body"]
    num_semicolons = sum(line.count(";") for line in sample_text.splitlines() if line.startswith("\t") and not line.startswith("\t."))
    assert sum(len(f["instructions"]) for f in sample["functions"]) <= num_semicolons


def test_variables_of_nvcc(sample: Module) -> None:
    words = {
        "primes": b"".join(n.to_bytes(4, "little", signed=True) for n in (2, 3, 5, 7, -1, 0)).hex(),
        "weights": "0000803f000000bf00005040",
        "middle": "00" * 8,
        "table": "00" * 16,
        "$str": b"which %d\n\0".hex(),
    }
    assert {v["name"]: v["bytes"] for v in sample["variables"]} == words
    assert by_name(sample["variables"], "middle")["relocations"] == [[0, 8, "weights", 4, True, 0]]
    table = by_name(sample["variables"], "table")["relocations"]
    assert [(at, size, symbol) for at, size, symbol, *_ in table] == [(0, 8, "_Z5twicei"), (8, 8, "_Z6squarei")]


def test_code_of_nvcc(sample: Module) -> None:
    kernel = by_name(sample["functions"], "sample")
    (prototype,) = kernel["prototypes"]
    assert any(text.startswith("call") and f"&{prototype[0]}" in text for text in kernel["instructions"]), "a call through the table"
    labels = {name for name, _ in kernel["labels"]}
    branches = [text.split("&")[1] for text in kernel["instructions"] if "bra" in text.split()[:-1] or "bra.uni" in text.split()]
    assert len(branches) > 10
    assert labels >= set(branches)
    assert all(index <= len(kernel["instructions"]) for _, index in kernel["labels"])
    lines = (FOLDER / "ptx_sample.cu").read_text().splitlines()
    for text, source in zip(kernel["instructions"], kernel["sources"], strict=True):
        file, _, line = source.partition(":")
        assert file, text
        if text.startswith("popc"):
            assert file == "ptx_sample.cu"
            assert "__popc" in lines[int(line) - 1]
    assert len(kernel["registers"]) == len(set(kernel["registers"]))


def test_inline_assembly_with_equal_names(sample: Module) -> None:
    spin = by_name(sample["functions"], "spin")
    assert [name for name, _ in spin["labels"]] == ["$L", "$L$1"]
    assert [text for text in spin["instructions"] if "bra" in text] == ["@p bra &$L", "@p$1 bra &$L$1"]
    assert {"p:pred", "p$1:pred"} <= set(spin["registers"])


# ---- The grammar ----

IMMEDIATES = {
    "0": "s64:0x0",
    "017": "s64:0xf",
    "0x1F": "s64:0x1f",
    "0XfU": "u64:0xf",
    "0b101": "s64:0x5",
    "9223372036854775807": "s64:0x7fffffffffffffff",
    "9223372036854775808": "u64:0x8000000000000000",
    "0f3F800000": "f32:0x3f800000",
    "0d3FF0000000000000": "f64:0x3ff0000000000000",
    "1.5": "f64:0x3ff8000000000000",
    "25.0e-1": "f64:0x4004000000000000",
    "-0f3F800000": "f32:0xbf800000",
    "-1": "s64:0xffffffffffffffff",
    "~0": "s64:0xffffffffffffffff",
    "!7": "s64:0x0",
    "WARP_SZ": "s64:0x20",
    "WARP_SZ - 1": "s64:0x1f",
    "1 + 2 * 3": "s64:0x7",
    "(1 + 2) * 3": "s64:0x9",
    "1 << 4 | 1": "s64:0x11",
    "17 % 5": "s64:0x2",
    "-17 / 5": "s64:0xfffffffffffffffd",
    "-8 >> 1": "s64:0xfffffffffffffffc",
    "-8U >> 60": "u64:0xf",
    "(.u64)-8 >> 60": "u64:0xf",
    "(.s64)0xFFFFFFFFFFFFFFFF < 0": "s64:0x1",
    "0xFFFFFFFFFFFFFFFF > 0": "s64:0x1",
    "6 ^ 3 & 1": "s64:0x7",
    "1 == 1 && 2 != 2 || 3 >= 3": "s64:0x1",
    "2 > 1 ? 10 : 20": "s64:0xa",
    "0 ? 1 : 0 ? 2 : 3": "s64:0x3",
    "1.0 / 4": "f64:0x3fd0000000000000",
}


def test_immediates_and_constant_expressions(parse: Parse) -> None:
    body = "\n".join(["  .reg .b64 %d;", *(f"  mov.b64 %d, {text};" for text in IMMEDIATES)])
    got = [text.removeprefix("mov.b64 %d, #") for text in parse_body(parse, body)["instructions"]]
    assert dict(zip(IMMEDIATES, got, strict=True)) == IMMEDIATES


OPERANDS = {
    "ld.global.v4.f32 {%a, %b, _, %d}, [%rd+16];": "ld.global.v4.f32 {%a, %b, _, %d}, [%rd+16]",
    "ld.global.f32 %a, [%rd-8 + 4];": "ld.global.f32 %a, [%rd-4]",
    "ld.global.f32 %a, [%rd+-4];": "ld.global.f32 %a, [%rd-4]",
    "ld.shared.f32 %a, [buffer+4*3];": "ld.shared.f32 %a, [&buffer+12]",
    "ld.global.f32 %a, [64];": "ld.global.f32 %a, [&+64]",
    "mov.u64 %rd, elsewhere-4;": "mov.u64 %rd, &elsewhere-4",
    "setp.lt.and.f32 %p|%q, %a, %b, !%p;": "setp.lt.and.f32 %p|%q, %a, %b, !%p",
    "@!%p mov.u32 %a, %ctaid.y;": "@!%p mov.u32 %a, %ctaid.y",
    "@plain bra.uni END;": "@plain bra.uni &END",
    "mov.b64 {%a, plain32}, %rd;": "mov.b64 {%a, plain32}, %rd",
    "call.uni (%a), callee, (%b, 3);": "call.uni (%a), &callee, (%b, #s64:0x3)",
    "cp.async.cg.shared.global.L2::128B [buffer], [%rd], 16;": "cp.async.cg.shared.global.L2::128B [&buffer], [%rd], #s64:0x10",
    "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [buffer], [%rd, {%a, %b}], [buffer+8];": (
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [&buffer], <[%rd], {%a, %b}>, [&buffer+8]"
    ),
    "mbarrier.arrive.shared::cta.b64 _, [buffer];": "mbarrier.arrive.shared::cta.b64 _, [&buffer]",
    "vadd.s32.u32.s32 %a, %b.b0, %d.h1;": "vadd.s32.u32.s32 %a, %b.b0, %d.h1",
    "bar.sync /* all\n of them */ 0; // and no more": "bar.sync #s64:0x0",
    "ret;;": "ret",
}


def test_operands(parse: Parse) -> None:
    head = ".reg .pred %p, %q, plain; .reg .b32 %a, %b, %d, plain32; .reg .b64 %rd; .shared .align 16 .b8 buffer[64];\n"
    function = parse_body(parse, head + "\n".join(OPERANDS) + "\nEND:")
    assert dict(zip(OPERANDS, function["instructions"], strict=True)) == OPERANDS
    assert function["labels"] == [["END", len(OPERANDS)]]


def test_nested_blocks_hide_names_of_outer_ones(parse: Parse) -> None:
    body = """
    .reg .b32 x, %r<2>;
    mov.u32 x, 0;
    { .reg .f32 x; .local .b8 buffer[4]; mov.f32 x, 0f00000000;
      { .reg .u64 x; .local .b8 buffer[8]; mov.u64 x, buffer; }
      mov.u64 %r0, buffer; mov.f32 x, 1.0; }
    mov.u32 x, 2;
    """
    function = parse_body(parse, body)
    assert function["registers"] == ["x:b32", "%r0:b32", "%r1:b32", "x$1:f32", "x$2:u64"]
    assert [(v["name"], v["size"]) for v in function["variables"]] == [("buffer", 4), ("buffer$1", 8)]
    destinations = [text.split()[1].rstrip(",") for text in function["instructions"]]
    assert destinations == ["x", "x$1", "x$2", "%r0", "x$1", "x"]
    assert [text.split()[2] for text in function["instructions"] if "buffer" in text] == ["&buffer$1", "&buffer"]


BLOCKS = {
    "inner before outer": ("{ L: bra L; } L: bra L;", ["L", "L$1"]),
    "outer after use": ("bra L; { bra L; L: ret; } L: ret;", ["L$1", "L"]),
    "used from within": ("{ bra L; } { L: ret; } L: bra L;", ["L$1", "L$1"]),
    "third sibling": ("{ bra L; L: } { bra L; L: } { bra L; L: }", ["L", "L$1", "L$2"]),
    "inner of renamed": ("{ L: ret; } L: { bra L; L: ret; } bra L;", ["L$2", "L$1"]),
}


@pytest.mark.parametrize(("body", "targets"), BLOCKS.values(), ids=BLOCKS)
def test_label_is_bound_in_the_innermost_block_that_has_it(parse: Parse, body: str, targets: list[str]) -> None:
    function = parse_body(parse, body)
    assert [text.split("&")[1] for text in function["instructions"] if "bra" in text] == targets
    assert {name for name, _ in function["labels"]} >= set(targets)


def test_branch_targets_and_prototypes(parse: Parse) -> None:
    block = "{ T: .branchtargets A, B; brx.idx %r, T; A: ret; B: ret; }"
    call = "P: .callprototype (.param .b32 _) _ (.param .b64 _, .param .align 8 .b8 _[24]) .noreturn; call (%r), %rd, (%rd), P;"
    function = parse_body(parse, f".reg .b32 %r; .reg .b64 %rd; {block} {block} {call}")
    assert function["targets"] == [["T", ["A", "B"]], ["T$1", ["A$1", "B$1"]]]
    assert [text for text in function["instructions"] if text.startswith("brx")] == ["brx.idx %r, &T", "brx.idx %r, &T$1"]
    ((name, returns, params),) = function["prototypes"]
    assert (name, [v["size"] for v in returns], [(v["size"], v["align"]) for v in params]) == ("P", [4], [(8, 8), (24, 8)])
    assert function["instructions"][-1] == "call (%r), %rd, (%rd), &P"


VARIABLES = {
    ".global .align 16 .v4 .f32 v = {1.0, 0f40000000, 3, -1};": (16, 16, "0000803f0000004000004040000080bf"),
    ".const .b16 grid[2][2] = {{1, 2}, {3}};": (8, 2, "0100020003000000"),
    ".const .b16 flat[2][2] = {1, 2, 3};": (8, 2, "0100020003000000"),
    ".global .s32 open[] = {-1, 2};": (8, 4, "ffffffff02000000"),
    ".global .f64 pi = 0d400921FB54442D18;": (8, 8, "182d4454fb210940"),
    ".global .b8 text[4] = {0x41, 'B'};": None,
    ".extern .shared .align 128 .b8 dynamic[];": (0, 128, None),
    ".weak .global .u64 at = generic(v)+8;": (8, 8, "00" * 8),
    ".global .b8 bytes[2] = {0xFF(v), 0xFF00(v+4)};": (2, 1, "0000"),
}


def test_variables(parse: Parse) -> None:
    results = parse(*(HEADER + text for text in VARIABLES))
    for (text, want), module in zip(VARIABLES.items(), results, strict=True):
        if want is None:
            assert module["line"] == 4, text
            continue
        (variable,) = module["variables"]
        assert (variable["size"], variable["align"], variable["bytes"]) == want, text
    assert results[-2]["variables"][0]["relocations"] == [[0, 8, "v", 8, True, 0]]
    assert results[-1]["variables"][0]["relocations"] == [[0, 1, "v", 0, False, 0], [1, 1, "v", 4, False, 8]]


ERRORS = {
    "": (1, "no .version"),
    HEADER + "\n.bogus x;": (5, ".bogus"),
    HEADER + ".global .align 3 .b32 x;": (4, "power of two"),
    HEADER + ".global .b8 x[2] = {1, 2, 3};": (4, "more initialisers"),
    HEADER + ".global .b8 x[][8000000000] = {{1}, {2}};": (4, "4 GiB"),
    HEADER + ".func f() {\n  mov.u32 %r1, 1\n}": (6, "';'"),
    HEADER + ".func f() {\n  @p ret;\n}": (5, "not a declared predicate"),
    HEADER + ".func f() {\n  .reg .b32 x;\n  .reg .b32 x;\n}": (6, "twice"),
    HEADER + ".func f() {\nL: ret;\nL: ret;\n}": (6, "twice"),
    HEADER + ".func f() {\n  mov.u32 %r, 1 / 0;\n}": (5, "zero"),
    HEADER + ".func f() {\n  mov.u32 %r, 09;\n}": (5, "'09'"),
    HEADER + ".func f() {\n  mov.f32 %r, 0f12;\n}": (5, "8 hexadecimal"),
    HEADER + ".func f() {\n  ld.u32 %r, [_];\n}": (5, "an address"),
    HEADER + ".func f() {\n\n /* open": (6, "comment"),
    HEADER + '.file 1 "open': (4, "string"),
    HEADER + ".func f() { ret; \n\n": (6, "end of the text"),
    HEADER + ".func f() { mov.u32 %r, " + "(" * 100000: (4, "deep"),
    HEADER + ".func f() { mov.u32 %r, " + "-" * 100000: (4, "deep"),
    HEADER + ".func f() " + "{" * 100000: (4, "deep"),
    HEADER + ".global .b8 x[4] = " + "{" * 100000: (4, "deep"),
    HEADER + ".func f() { ld.u32 " + "{" * 100000: (4, "deep"),
}


def test_errors_name_line_and_cause(parse: Parse) -> None:
    for (text, (line, cause)), result in zip(ERRORS.items(), parse(*ERRORS), strict=True):
        shown = text.removeprefix(HEADER)[:60]
        assert "error" in result, shown
        assert (result["line"], cause in result["error"]) == (line, True), (shown, result)


# ---- Damaged text ----

TOKENS = [
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ";",
    ",",
    "-",
    "!",
    "@",
    "%",
    ".",
    "0x",
    "0f",
    "1e9",
    '"',
    "/*",
    "<",
    "generic",
    "_",
    ".reg",
    "\0",
    "\xff",
]


@st.composite
def damages(draw: st.DrawFn) -> list[tuple[float, float, str]]:
    """Twenty times: the part of the text to cut, by its two ends in [0, 1], and what takes its place."""
    place = st.floats(0, 1, allow_nan=False)
    return draw(st.lists(st.tuples(place, place, st.sampled_from(["", *TOKENS])), min_size=20, max_size=20))


def assert_judged(results: list[Module], texts: list[bytes]) -> None:
    """Each text is parsed, or refused with one of its lines."""
    for result, text in zip(results, texts, strict=True):
        if "error" in result:
            assert 1 <= result["line"] <= text.count(b"\n") + 1
            assert result["error"].startswith(f"PTX line {result['line']}: ")


def test_every_truncation(parse: Parse, sample_text: str) -> None:
    text = sample_text.encode()
    texts = [text[: len(text) * i // 500] for i in range(500)]
    results = parse(*texts)
    assert_judged(results, texts)
    assert sum("error" in result for result in results) > 400


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=damages(), small=st.booleans())
def test_mutations(parse: Parse, sample_text: str, cuts: list[tuple[float, float, str]], small: bool) -> None:
    text = (
        HEADER + ".entry f() { .reg .pred %p, %q; .reg .b32 %a, %b, %d; .reg .b64 %rd;\n" + "\n".join(OPERANDS) + "}"
        if small
        else sample_text
    )
    whole = text.encode()
    texts = []
    for start, end, new in cuts:
        at = int(start * len(whole))
        texts.append(whole[:at] + new.encode("latin-1") + whole[at + int(end**4 * 60) :])
    assert_judged(parse(*texts), texts)
