"""Chains in CUDA C++: a header with a ``Chain<number>`` for each, which the sealed engine of op elementwise is compiled with."""

from __future__ import annotations

from collections.abc import Mapping

from contract.expressions.functions import COMPARISONS, FUNCTIONS, LOGIC
from contract.expressions.language import Call, Chain, Extent, Name, Node, Number, Operand

# The number of a chain that the op's catalogue does not hold, also in the field of its Params.
OWN = -1
_TYPES = {"T": "kGeneric", "f32": "kFloat32", "bf16": "kBfloat16", "f16": "kFloat16", "bool": "kBool"}
_EXTENTS = {Extent.FULL: "kFull", Extent.COLUMNS: "kColumns", Extent.ROWS: "kRows", Extent.ONE: "kOne"}


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
        f"    static constexpr Operand kInputs[] = {{{', '.join(map(_write_operand, chain.inputs))}}};",
        f"    static constexpr Operand kOutputs[] = {{{', '.join(map(_write_operand, chain.outputs))}}};",
        f"    static constexpr int kNumDraws = {chain.num_draws};",
        "",
        "    __device__ __forceinline__ static void compute(const float* in, const std::uint32_t* words, float* out) {",
        *(f"        {_declare(o.name, o.kind)} = in[{i}]{' != 0.0f' if o.kind == 'bool' else ''};" for i, o in enumerate(chain.inputs)),
    ]
    kinds = {o.name: o.kind for o in chain.inputs}
    for target, node in chain.assignments:
        kinds[target] = _find_kind(node, kinds)
        lines.append(f"        {_declare(target, kinds[target])} = {_write(node)};")
    lines += [f"        out[{i}] = v_{o.name}{' ? 1.0f : 0.0f' if o.kind == 'bool' else ''};" for i, o in enumerate(chain.outputs)]
    return "\n".join([*lines, "    }", "};", ""])


def _write_operand(operand: Operand) -> str:
    return f"{{Type::{_TYPES[operand.type]}, Extent::{_EXTENTS[operand.extent]}}}"


def _declare(name: str, kind: str) -> str:
    return f"[[maybe_unused]] const {kind} v_{name}"


def _find_kind(node: Node, kinds: Mapping[str, str]) -> str:
    if isinstance(node, Name):
        return kinds[node.name]
    is_bool = isinstance(node, Call) and (node.function in COMPARISONS or node.function in LOGIC or node.function == "keep")
    return "bool" if is_bool else "float"


def _write(node: Node) -> str:
    if isinstance(node, Number):
        # Every digit that fp32 has.
        return f"{float.hex(node.value)}f"
    if isinstance(node, Name):
        return f"v_{node.name}"
    arguments = [_write(argument) for argument in node.arguments]
    if node.function == "keep":
        return f"is_kept(words[{node.draw}], {arguments[0]})"
    if node.function == "where":
        return "({} ? {} : {})".format(*arguments)
    if node.function in FUNCTIONS:
        return FUNCTIONS[node.function].cuda.format(*arguments)
    table = COMPARISONS if node.function in COMPARISONS else LOGIC
    return table[node.function][0].format(*arguments)
