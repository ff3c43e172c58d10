"""Chains in CUDA C++: a header with a ``Chain<number>`` for each, with which the sealed engine of op elementwise is compiled."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from contract.expressions.functions import COMPARISONS, COUNTING, FUNCTIONS, LOGIC
from contract.expressions.language import parse_chain
from contract.expressions.tree import Call, Chain, Extent, Name, Node, Number, Operand

# The number of a chain that the op's catalogue does not hold, also in the field of its Params.
OWN = -1
_TYPES = {"T": "kGeneric", "f32": "kFloat32", "bf16": "kBfloat16", "f16": "kFloat16", "bool": "kBool"}
_KINDS = {"float": "float", "bool": "bool", "int": "long long"}
_COUNTING = {"add_count": "({} + {})", "sub_count": "({} - {})"}
_EXTENTS = {Extent.FULL: "kFull", Extent.COLUMNS: "kColumns", Extent.ROWS: "kRows", Extent.ONE: "kOne"}


_WRITTEN = re.compile(
    r"^// (?P<name>\w+)\((?P<inputs>.*)\) -> (?P<outputs>.*)\n(?P<body>(?://     .*\n)+)"
    r"template <>\nstruct Chain<(?P<number>-?\d+)> ",
    re.MULTILINE,
)


def write_chains(op: str, chains: Mapping[int, Chain]) -> str:
    """Return the header ``<op>/chains.hpp`` with these chains by their numbers."""
    parts = [
        "// Generated from the chains' expressions; change them there. What an element of each chain is made of.\n"
        "#pragma once\n\n"
        "#include <cstdint>\n\n"
        f'#include "{op}/chain.cuh"\n'
        f'#include "{op}/functions.cuh"\n\n'
        f"namespace aicf::{op} {{\n"
    ]
    parts += [_write_chain(number, chain) for number, chain in chains.items()]
    return "\n".join([*parts, f"}}  // namespace aicf::{op}\n"])


def _write_chain(number: int, chain: Chain) -> str:
    lines = [
        f"// {chain.name}({', '.join(map(str, chain.inputs))}) -> {', '.join(map(str, chain.outputs))}",
        *(f"//     {line}" for line in chain.body.split("; ")),
        "template <>",
        f"struct Chain<{number}> {{",
        f'    static constexpr const char* kName = "{chain.name}";',
        f"    static constexpr int kCode = {number};",
        f"    static constexpr Operand kInputs[] = {{{', '.join(_write_operand(w) for o in chain.inputs for w in o.words)}}};",
        f"    static constexpr Operand kOutputs[] = {{{', '.join(_write_operand(w) for o in chain.outputs for w in o.words)}}};",
        f"    static constexpr int kNumDraws = {chain.num_draws};",
        "",
        "    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {",
        *_write_inputs(chain),
    ]
    kinds = {o.name: o.kind for o in chain.inputs}
    for target, node in chain.assignments:
        kinds[target] = _find_kind(node, kinds)
        lines.append(f"        {_declare(target, kinds[target])} = {_write(node)};")
    return "\n".join([*lines, *_write_outputs(chain), "    }", "};", ""])


def _write_inputs(chain: Chain) -> Iterator[str]:
    place = 0
    for operand in chain.inputs:
        read = f"in[{place}]"
        if operand.kind == "bool":
            read += " != 0.0f"
        elif operand.kind == "int":
            high = f"static_cast<unsigned long long>(__float_as_uint(in[{place + 1}])) << 32"
            read = f"static_cast<long long>({high} | __float_as_uint(in[{place}]))"
        yield f"        {_declare(operand.name, operand.kind)} = {read};"
        place += len(operand.words)


def _write_outputs(chain: Chain) -> Iterator[str]:
    place = 0
    for operand in chain.outputs:
        value = f"v_{operand.name}"
        if operand.kind == "int":
            yield f"        out[{place}] = __uint_as_float(static_cast<unsigned>({value}));"
            yield f"        out[{place + 1}] = __uint_as_float(static_cast<unsigned>({value} >> 32));"
        else:
            yield f"        out[{place}] = {value}{' ? 1.0f : 0.0f' if operand.kind == 'bool' else ''};"
        place += len(operand.words)


def read_chains(header: str) -> dict[int, Chain]:
    """Return the chains of a header that :func:`write_chains` wrote, by their numbers, from its comments."""
    found = {}
    for match in _WRITTEN.finditer(header):
        body = "; ".join(line.removeprefix("//").strip() for line in match["body"].strip().splitlines())
        found[int(match["number"])] = parse_chain(match["name"], f"{match['inputs']} -> {match['outputs']}; {body}")
    return found


def _write_operand(operand: Operand) -> str:
    return f"{{Type::{_TYPES[operand.type]}, Extent::{_EXTENTS[operand.extent]}}}"


def _declare(name: str, kind: str) -> str:
    return f"[[maybe_unused]] const {_KINDS[kind]} v_{name}"


def _find_kind(node: Node, kinds: Mapping[str, str]) -> str:
    if isinstance(node, Name):
        return kinds[node.name]
    if isinstance(node, Call) and (
        node.function in COUNTING.values() or (node.function == "where" and _find_kind(node.arguments[1], kinds) == "int")
    ):
        return "int"
    is_bool = isinstance(node, Call) and (node.function in COMPARISONS or node.function in LOGIC or node.function == "keep")
    return "bool" if is_bool else "float"


def _write(node: Node) -> str:
    if isinstance(node, Number):
        # Every digit that fp32 has.
        return f"{float.hex(node.value)}f"
    if isinstance(node, Name):
        return f"v_{node.name}"
    if node.function in COUNTING.values():
        parts = [f"{int(a.value)}ll" if isinstance(a, Number) else _write(a) for a in node.arguments]
        return _COUNTING[node.function].format(*parts)
    arguments = [_write(argument) for argument in node.arguments]
    if node.function == "float":
        return f"__ll2float_rn({arguments[0]})"
    if node.function == "keep":
        return f"is_kept(words[{node.draw}], {arguments[0]})"
    if node.function == "where":
        return "({} ? {} : {})".format(*arguments)
    if node.function in FUNCTIONS:
        return FUNCTIONS[node.function].cuda.format(*arguments)
    table = COMPARISONS if node.function in COMPARISONS else LOGIC
    return table[node.function][0].format(*arguments)
