"""TorchScript as modules: its graph with functions and modules put in their places, and branches decided that settings decide."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from aicf.frontends.imported import Imported
from aicf.frontends.network import Call, Network, Ref, Refusal, list_refs
from aicf.frontends.torch_tables import Tensors, check_writes, make_call

_LINE = re.compile(r'(?:File )?"?([^"\s]+\.py)"?(?:, line |\()(\d+)')


@dataclass(frozen=True)
class _Owner:
    """A module of the script, or the script itself, with its path."""

    module: Any
    path: str


# What becomes of values that are known while the graph is read.
_DECIDED: dict[str, Callable[..., Any]] = {
    "aten::__is__": lambda a, b: (a is b) if None in (a, b) else a == b,
    "aten::__isnot__": lambda a, b: (a is not b) if None in (a, b) else a != b,
    "aten::__not__": lambda a: not a,
    "aten::__contains__": lambda a, b: b in a,
    "aten::len": len,
    "aten::warn": lambda *given: None,
}
_SAME = ("prim::NumToTensor", "aten::Int", "aten::Float", "aten::Bool", "aten::ScalarImplicit", "prim::unchecked_cast", "prim::annotate")
_BUILT: dict[str, Callable[[list[Any]], Any]] = {
    "prim::ListConstruct": list,
    "prim::TupleConstruct": tuple,
    "prim::DictConstruct": lambda given: dict(zip(given[::2], given[1::2], strict=True)),
}


def read_script(module: Any) -> Imported:
    """Return a TorchScript module, scripted or traced; raises :class:`~aicf.errors.UnsupportedError` listing what is not served."""
    network = Network(f"{module.original_name} of TorchScript")
    graph = module.inlined_graph
    reader = _Reader(network)
    own, *inputs = graph.inputs()
    reader.values[own.debugName()] = _Owner(module, "")
    for value in inputs:
        name = value.debugName()
        network.inputs.append(name)
        reader.values[name] = Ref(name)
    reader.read(graph.nodes())
    results = [reader.values.get(value.debugName()) for value in graph.outputs()]
    network.results = results[0] if len(results) == 1 else tuple(results)
    check_writes(network)
    return Imported(network)


class _Reader:
    """A graph on its way into a table. ``values`` are known ones as Python has them, with :class:`Ref` for those that a replay makes."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.tensors = Tensors(network)
        self.values: dict[str, Any] = {}

    def read(self, nodes: Iterable[Any]) -> None:
        """Read nodes in order; what cannot be imported is noted, and what depends on it stands for a value all the same."""
        for node in nodes:
            try:
                made = self._read_node(node)
            except Refusal as refusal:
                self.network.refuse(node.kind(), self._find_place(node), str(refusal))
                made = [Ref(value.debugName()) for value in node.outputs()]
            self.values.update(zip((value.debugName() for value in node.outputs()), made, strict=True))

    def _read_node(self, node: Any) -> list[Any]:
        """Return what a node makes: values that are known, or the names of those that a replay makes."""
        kind, given = node.kind(), [self.values.get(value.debugName()) for value in node.inputs()]
        if kind == "prim::Constant":
            return [self._read_constant(node)]
        if kind == "prim::GetAttr":
            return [self._read_attribute(node, given[0])]
        if kind == "prim::If":
            return self._read_branch(node, given[0])
        if kind in _BUILT:
            return [_BUILT[kind](given)]
        if kind in ("prim::TupleUnpack", "prim::ListUnpack") and isinstance(given[0], (list, tuple)):
            return list(given[0])
        if kind in _SAME:
            return given[:1]
        if kind in ("aten::__is__", "aten::__isnot__") and None in given and any(list_refs(given)):
            return [kind == "aten::__isnot__"]  # what a replay makes is never None
        if kind == "aten::warn":
            return []
        if not any(list_refs(given)) and kind in _DECIDED:
            return [_DECIDED[kind](*given)]
        return self._read_call(node, given)

    def _read_constant(self, node: Any) -> Any:
        import torch as pytorch

        if next(iter(node.outputs())).type().kind() == "NoneType":
            return None
        value = node.output().toIValue()
        if isinstance(value, pytorch.Tensor) and value.ndim == 0:
            return value.item()
        if isinstance(value, pytorch.Tensor):
            name = node.output().debugName()
            self.tensors.take(name, f"constant.{name}", value)
            return Ref(name)
        return value

    def _read_attribute(self, node: Any, owner: Any) -> Any:
        import torch as pytorch

        name = node.s("name")
        if not isinstance(owner, _Owner):
            raise Refusal("an attribute of an object that is not a module is not supported")
        found, path = getattr(owner.module, name), f"{owner.path}.{name}" if owner.path else name
        if isinstance(found, (pytorch.jit.ScriptModule, pytorch._C.ScriptModule)):
            return _Owner(found, path)
        if isinstance(found, pytorch.Tensor):
            self.tensors.take(path, path, found)
            return Ref(path)
        return found

    def _read_branch(self, node: Any, condition: Any) -> list[Any]:
        blocks = list(node.blocks())
        going = [block for block in blocks if not any(inner.kind() == "prim::RaiseException" for inner in block.nodes())]
        if isinstance(condition, (bool, int)):
            return self._read_block(blocks[0 if condition else 1])
        if len(going) == 1:  # a check of an input: the operators have checks of their own
            return self._read_block(going[0])
        if not all(value.type().kind() == "BoolType" for value in node.outputs()):
            raise Refusal("a branch that depends on an input is not supported")
        # An "and" or "or" of conditions: both sides are found, and one is taken when the network is called.
        outputs = tuple(value.debugName() for value in node.outputs())
        sides = [self._read_block(block) for block in blocks]
        self.network.calls.append(Call("prim::If", _choose, (condition, *sides), outputs, self._find_place(node)))
        return [Ref(name) for name in outputs]

    def _read_block(self, block: Any) -> list[Any]:
        self.read(block.nodes())
        return [self.values.get(value.debugName()) for value in block.outputs()]

    def _read_call(self, node: Any, given: list[Any]) -> list[Any]:
        outputs = tuple(value.debugName() for value in node.outputs())
        place = self._find_place(node)
        if node.kind() in ("prim::TupleUnpack", "prim::ListUnpack"):
            self.network.calls.append(Call(node.kind(), lambda x: x if len(x) > 1 else x[0], tuple(given), outputs, place, is_view=True))
            return [Ref(name) for name in outputs]
        if not node.kind().startswith("aten::"):
            raise Refusal("TorchScript's own control flow and objects are not supported")
        base = node.kind().removeprefix("aten::")
        call = make_call(node.kind(), base, tuple(given), {}, outputs, place, self._find_owner(node, given))
        if not any(list_refs(given)):
            return [call.run(*call.inputs, **call.keywords)]
        self.network.calls.append(call)
        return [Ref(name) for name in outputs]

    def _find_place(self, node: Any) -> str:
        """Return the line of the source that a node comes from, where it is known."""
        found = _LINE.findall(str(node.sourceRange()))
        names = ", ".join(value.debugName() for value in node.outputs())
        own = [each for each in found if "/torch/" not in each[0]] or found  # the innermost frame comes first
        return f"%{names}" + (f" ({own[0][0]}:{own[0][1]})" if own else "")

    def _find_owner(self, node: Any, given: list[Any]) -> str:
        """Return the path of a node's module: as the trace has it, or that of its first own tensor."""
        scope: str = node.scopeName().rpartition("/")[2].rpartition("::")[2]
        if scope:
            return scope.removeprefix("__module").removeprefix(".")
        owned = [self.network.owners[name] for name in list_refs(given) if name in self.network.owners]
        return owned[0].rpartition(".")[0] if owned else ""


def _choose(condition: Any, yes: list[Any], no: list[Any]) -> Any:
    chosen = yes if condition else no
    return chosen if len(chosen) > 1 else chosen[0]
