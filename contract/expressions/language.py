"""The language of chains: a typed signature and assignments, read into one tree.

``x: T, b: T[columns] -> y: T; y = gelu(x + b)`` takes inputs x and b and makes y. An operand is [rows, columns] elements unless it says
otherwise: ``[columns]`` has one value per column, ``[rows]`` one per row, ``[]`` one in all. ``T`` is the dtype of the call (float32,
bfloat16 or float16), that of the first input where this has type T; ``f32``, ``bf16``, ``f16`` and ``bool`` are themselves. Arithmetic is
in fp32, and each output is rounded once.

``i64`` is a counter: one number, in a chain that makes one element. It is added to and subtracted from in 64 bits, ``float(i)`` is its
value in fp32, ``where(c, i, j)`` one of two, and the engine holds it as two words of 32 bits, each an operand of its own.

Assignments have ``+ - * /``, ``**``, comparisons, ``& | ~`` of bools, ``a if c else b`` (``where(c, a, b)``), numbers (fp32), names of
inputs and of what was assigned before, and the functions of :mod:`contract.expressions.functions`. ``keep(p)`` is true with probability
1 - p, by an element's number and the counter that the chain is given; ``dropout(x, p)`` is ``where(keep(p), x * (1 / (1 - p)), 0)``; p is
a number or an input.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

import numpy as np

from contract.expressions.functions import COMPARISONS, COUNTING, FUNCTIONS, LOGIC, MACROS
from contract.expressions.tree import DTYPES, GENERIC, Call, Chain, Extent, Name, Node, Number, Operand

MAX_INPUTS, MAX_OUTPUTS, MAX_DRAWS = 8, 4, 4
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*\Z")
_OPERAND = re.compile(r"(?P<name>\w+)\s*:\s*(?P<type>\w+)\s*(?P<extent>\[\s*(?:rows|columns)?\s*\])?\s*\Z")


class ExpressionError(ValueError):
    """A text is no chain; the message says what is wrong with it and what to write."""


def parse_chain(name: str, text: str) -> Chain:
    """Read a chain; raises :class:`ExpressionError`."""
    if not _IDENTIFIER.match(name):
        raise ExpressionError(f"chain name {name!r}: use lower-case letters, digits and underscores, starting with a letter")
    signature, _, body = text.partition(";")
    left, arrow, right = signature.partition("->")
    if not arrow or not body.strip():
        raise ExpressionError(f"chain {name}: write `inputs -> outputs; assignments`, as in `x: T -> y: T; y = relu(x)`, not {text!r}")
    inputs, outputs = _parse_operands(name, left), _parse_operands(name, right)
    _check_operands(name, inputs, outputs)
    reader = _Reader(name, inputs)
    assignments = reader.read_body(body)
    written = {target: reader.kinds[target] for target, _ in assignments}
    for operand in outputs:
        if operand.name not in written:
            raise ExpressionError(f"chain {name}: output {operand.name} is not assigned")
        if written[operand.name] != operand.kind:
            raise ExpressionError(f"chain {name}: output {operand.name} is {operand.type}, and is assigned a {written[operand.name]}")
    if unused := sorted({o.name for o in inputs} - reader.used):
        raise ExpressionError(f"chain {name}: input {', '.join(unused)} is not used")
    return Chain(name, inputs, outputs, tuple(assignments), reader.num_draws, reader.canonical)


def _parse_operands(chain: str, text: str) -> tuple[Operand, ...]:
    found = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        match = _OPERAND.match(part)
        if match is None or (match["type"] != GENERIC and match["type"] not in DTYPES):
            known = ", ".join([GENERIC, *DTYPES])
            raise ExpressionError(
                f"chain {chain}: operand {part!r} is not understood: write `name: type`, a type of {known}, then [columns]"
            )
        if not _IDENTIFIER.match(match["name"]):
            raise ExpressionError(f"chain {chain}: operand name {match['name']!r}: use lower-case letters, digits and underscores")
        inside = None if match["extent"] is None else match["extent"].strip("[] ")
        extent = Extent.FULL if inside is None else Extent(inside or "one")
        found.append(Operand(match["name"], match["type"], extent))
    return tuple(found)


def _check_operands(chain: str, inputs: tuple[Operand, ...], outputs: tuple[Operand, ...]) -> None:
    num_inputs, num_outputs = (sum(len(o.words) for o in operands) for operands in (inputs, outputs))
    if not 1 <= num_inputs <= MAX_INPUTS or not 1 <= num_outputs <= MAX_OUTPUTS:
        raise ExpressionError(
            f"chain {chain}: it has {num_inputs} inputs and {num_outputs} outputs; 1 to {MAX_INPUTS} and 1 to {MAX_OUTPUTS} fit"
        )
    names = [o.name for o in (*inputs, *outputs)]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise ExpressionError(f"chain {chain}: operand {', '.join(twice)} is named more than once")
    if GENERIC in (o.type for o in (*inputs, *outputs)) and inputs[0].type != GENERIC:
        raise ExpressionError(f"chain {chain}: its first input must be of type T, not `{inputs[0]}`: its dtype says what T is")
    if partial := [o for o in outputs if o.extent is not Extent.FULL]:
        raise ExpressionError(f"chain {chain}: output `{partial[0]}` must be of full extent")


_BINARY = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow"}
_LOGIC = {ast.BitAnd: "and", ast.BitOr: "or"}
_COMPARISONS = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}


class _Reader:
    """Turns assignments into trees, and checks kinds as it goes."""

    def __init__(self, chain: str, inputs: tuple[Operand, ...]) -> None:
        self.chain = chain
        self.kinds = {o.name: o.kind for o in inputs}
        self.used: set[str] = set()
        self.num_draws = 0
        self.canonical = ""
        self._scalars = {o.name for o in inputs if o.extent is Extent.ONE and o.type == "f32"}
        self._inputs = {o.name for o in inputs}

    def read_body(self, text: str) -> list[tuple[str, Node]]:
        try:
            # A line of its own each, so that the language needs no semicolons within brackets.
            module = ast.parse("\n".join(part.strip() for part in text.split(";")))
        except SyntaxError as error:
            raise ExpressionError(f"chain {self.chain}: {text.strip()!r}: {error.msg}") from error
        found: list[tuple[str, Node]] = []
        for statement in module.body:
            if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or not isinstance(statement.targets[0], ast.Name):
                raise ExpressionError(f"chain {self.chain}: {ast.unparse(statement)!r} is not an assignment; write `name = expression`")
            target = statement.targets[0].id
            if target in self.kinds or not _IDENTIFIER.match(target):
                raise ExpressionError(
                    f"chain {self.chain}: {target!r} cannot be assigned: names are in lower case, and each is assigned once"
                )
            node, kind = self._read(statement.value)
            found.append((target, node))
            self.kinds[target] = kind
        self.canonical = "; ".join(ast.unparse(s) for s in module.body)
        return found

    def _read(self, node: ast.expr) -> tuple[Node, str]:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
            return self._read_number(float(node.value)), "float"
        if isinstance(node, ast.Name):
            if node.id not in self.kinds:
                raise ExpressionError(f"chain {self.chain}: {node.id!r} is neither an input nor assigned before")
            self.used.add(node.id)
            return Name(node.id), self.kinds[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            return self._call(_BINARY[type(node.op)], (node.left, node.right))
        if isinstance(node, ast.BinOp) and type(node.op) in _LOGIC:
            return self._call(_LOGIC[type(node.op)], (node.left, node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self._call("neg", (node.operand,))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            return self._call("not", (node.operand,))
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
            return self._call(_COMPARISONS[type(node.ops[0])], (node.left, node.comparators[0]))
        if isinstance(node, ast.IfExp):
            return self._call("where", (node.test, node.body, node.orelse))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return self._call(node.func.id, tuple(node.args))
        known = "+ - * / **, one comparison at a time, & | ~, `a if c else b`, numbers, names and calls of functions"
        raise ExpressionError(f"chain {self.chain}: {ast.unparse(node)!r} is not understood: there are {known}")

    def _read_number(self, value: float) -> Number:
        with np.errstate(over="ignore"):
            rounded = float(np.float32(value))
        if not np.isfinite(rounded):
            raise ExpressionError(f"chain {self.chain}: {value!r} is beyond fp32, whose largest number is 3.4e38")
        return Number(rounded)

    def _call(self, function: str, given: tuple[ast.expr, ...]) -> tuple[Node, str]:
        if function == "dropout" and len(given) == 2:
            return self._read_dropout(*given)
        if function in MACROS:
            parameters, text = MACROS[function]
            self._require_count(function, len(parameters), given)
            names = dict(zip(parameters, given, strict=True))
            return self._read(_Substitute(names).visit(ast.parse(text, mode="eval").body))
        if function == "keep":
            self._require_count(function, 1, given)
            return self._read_keep(given[0]), "bool"
        if function == "float":
            self._require_count(function, 1, given)
            node, kind = self._read(given[0])
            if kind != "int":
                raise ExpressionError(f"chain {self.chain}: float takes a counter (i64), and {ast.unparse(given[0])!r} is a {kind}")
            return Call("float", (node,)), "float"
        arguments, result = self._find_kinds(function)
        self._require_count(function, len(arguments), given)
        read = [self._read(argument) for argument in given]
        if any(kind == "int" for _, kind in read):
            return self._count(function, given, read)
        for wanted, (_, kind), argument in zip(arguments, read, given, strict=True):
            if kind != wanted:
                raise ExpressionError(f"chain {self.chain}: {ast.unparse(argument)!r} is a {kind}, and {function} takes a {wanted} there")
        return Call(function, tuple(node for node, _ in read)), result

    def _count(self, function: str, given: tuple[ast.expr, ...], read: list[tuple[Node, str]]) -> tuple[Node, str]:
        """Return a sum or difference of counters and whole numbers, or one of two counters."""
        if function == "where" and [kind for _, kind in read] == ["bool", "int", "int"]:
            return Call(function, tuple(node for node, _ in read)), "int"
        if function in COUNTING.values():
            function = next(name for name, own in COUNTING.items() if own == function)
        if function not in COUNTING:
            known = ", ".join(COUNTING)
            raise ExpressionError(f"chain {self.chain}: {function} takes no counter (i64) there; those that do: {known}, float, where")
        for (node, kind), argument in zip(read, given, strict=True):
            is_whole = isinstance(node, Number) and node.value == int(node.value)
            if kind != "int" and not is_whole:
                raise ExpressionError(f"chain {self.chain}: {ast.unparse(argument)!r} is a {kind}, and counters take only whole numbers")
        return Call(COUNTING[function], tuple(node for node, _ in read)), "int"

    def _find_kinds(self, function: str) -> tuple[tuple[str, ...], str]:
        if function in FUNCTIONS:
            return FUNCTIONS[function].arguments, FUNCTIONS[function].result
        if function in COUNTING.values():
            return ("int", "int"), "int"
        if function in COMPARISONS:
            return ("float", "float"), "bool"
        if function in LOGIC:
            return ("bool",) * (1 if function == "not" else 2), "bool"
        if function == "where":
            return ("bool", "float", "float"), "float"
        known = ", ".join(sorted([*FUNCTIONS, *COMPARISONS, *MACROS, "where", "keep", "dropout"]))
        raise ExpressionError(f"chain {self.chain}: there is no function {function!r}; there are: {known}")

    def _require_count(self, function: str, wanted: int, given: tuple[ast.expr, ...]) -> None:
        if len(given) != wanted:
            raise ExpressionError(f"chain {self.chain}: {function} takes {wanted} arguments, not {len(given)}")

    def _read_keep(self, share: ast.expr) -> Node:
        node, _ = self._read(share)
        is_known = isinstance(node, Number) or (isinstance(node, Name) and node.name in self._scalars)
        if not is_known:
            raise ExpressionError(
                f"chain {self.chain}: {ast.unparse(share)!r} cannot be a probability of keep or dropout: give a number, or an input of "
                "type f32[]"
            )
        if self.num_draws == MAX_DRAWS:
            raise ExpressionError(f"chain {self.chain}: it draws more than {MAX_DRAWS} times")
        self.num_draws += 1
        return Call("keep", (node,), self.num_draws - 1)

    def _read_dropout(self, value: ast.expr, share: ast.expr) -> tuple[Node, str]:
        kept = self._read_keep(share)
        taken, kind = self._read(value)
        if kind != "float":
            raise ExpressionError(f"chain {self.chain}: dropout takes a float, and {ast.unparse(value)!r} is a {kind}")
        (p,) = kept.arguments if isinstance(kept, Call) else ()
        scale = Call("div", (Number(1.0), Call("sub", (Number(1.0), p))))
        return Call("where", (kept, Call("mul", (taken, scale)), Number(0.0))), "float"


class _Substitute(ast.NodeTransformer):
    """Puts arguments in the place of a macro's parameters."""

    def __init__(self, arguments: Mapping[str, ast.expr]) -> None:
        self._arguments = arguments

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._arguments.get(node.id, node)
