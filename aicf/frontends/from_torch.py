"""PyTorch's programs as modules: ``torch.export``, ``torch.fx``; TorchScript is in :mod:`aicf.frontends.from_torchscript`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aicf.frontends.from_torchscript import read_script
from aicf.frontends.imported import Imported
from aicf.frontends.network import Network, Ref, Refusal
from aicf.frontends.torch_tables import Tensors, check_writes, make_call

# Calls of exported programs that check what the exporter took for granted, and make nothing; shapes of inputs are checked here.
_CHECKS = ("_assert_tensor_metadata", "_assert_scalar", "_assert_async", "sym_constrain_range_for_size", "sym_constrain_range")
# Modules of torch.nn that are traced into: they call functions of their parameters and settings, whatever the inputs are.
_OPEN = (
    *(
        "CELU",
        "Dropout",
        "ELU",
        "Embedding",
        "Flatten",
        "GELU",
        "GroupNorm",
        "Hardsigmoid",
        "Hardswish",
        "Hardtanh",
        "Identity",
        "LayerNorm",
    ),
    *("LeakyReLU", "Linear", "LogSigmoid", "LogSoftmax", "Mish", "ModuleDict", "ModuleList", "PReLU", "RMSNorm", "ReLU", "ReLU6"),
    *("SELU", "Sequential", "SiLU", "Sigmoid", "Softmax", "Softplus", "Softsign", "Tanh", "Unflatten"),
)


def torch(source: Any) -> Imported:
    """Return a network of PyTorch as a module: a ``torch.export`` program, a ``torch.fx`` graph module, a TorchScript module, or a module.

    A plain module is traced by ``torch.fx``. Parameters and buffers keep their names and, on the host, their memory: training one trains
    the other. Raises ImportError without PyTorch, TypeError for anything else, and :class:`~aicf.errors.UnsupportedError` listing all calls
    that are not served.
    """
    try:
        import torch as pytorch
    except ImportError as error:
        raise ImportError("frontends.torch needs PyTorch: pip install torch", name=error.name) from error
    if isinstance(source, pytorch.export.ExportedProgram):
        return _read_exported(source)
    if isinstance(source, pytorch.jit.ScriptModule):
        return read_script(source)
    if isinstance(source, pytorch.nn.Module):
        return _read_module(source)
    kinds = "a torch.export program, a torch.fx.GraphModule, a TorchScript module or an nn.Module"
    raise TypeError(f"frontends.torch: expected {kinds}, got {type(source).__name__}")


# ---- torch.export


def _read_exported(program: Any) -> Imported:
    """Return an exported program; what it took for granted of its inputs' shapes is checked when it is called."""
    from torch.export.graph_signature import InputKind, OutputKind
    from torch.utils import _pytree

    network = Network("torch.export program")
    tensors = Tensors(network)
    state: Mapping[str, Any] = {**program.state_dict, **program.constants}
    for spec in program.graph_signature.input_specs:
        if spec.kind == InputKind.USER_INPUT:
            network.inputs.append(spec.arg.name)
        elif spec.target in state:
            tensors.take(spec.arg.name, spec.target, state[spec.target])
        else:
            network.refuse(spec.kind.name, spec.target, "an input of this kind is not supported")
    _FxReader(network, tensors).read(program.graph)
    results = []
    for spec, made in zip(program.graph_signature.output_specs, network.results, strict=True):
        if spec.kind == OutputKind.USER_OUTPUT:
            results.append(made)
        else:
            network.refuse(spec.kind.name, str(spec.target), "a result that changes a buffer or an input is not supported")
    network.results = _pytree.tree_unflatten(results, program.call_spec.out_spec)
    return Imported(network)


# ---- torch.fx


def _read_module(module: Any) -> Imported:
    """Return a graph module, or a module as ``torch.fx`` traces it, layers opened down to functions."""
    from torch import fx

    class Tracer(fx.Tracer):  # type: ignore[misc]  # PyTorch's types are not followed
        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            return type(m).__module__.startswith("torch.nn") and type(m).__name__ not in _OPEN

    network = Network(type(module).__name__)
    tensors = Tensors(network)
    graph = Tracer().trace(module)
    for node in graph.nodes:
        if node.op == "get_attr":
            tensors.take(node.name, node.target, _find_attribute(module, node.target))
    _FxReader(network, tensors, module).read(graph)
    return Imported(network)


def _find_attribute(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


class _FxReader:
    """A graph of ``torch.fx``, exported or traced, on its way into a table."""

    def __init__(self, network: Network, tensors: Tensors, module: Any = None) -> None:
        self.network = network
        self.tensors = tensors
        self.module = module

    def read(self, graph: Any) -> None:
        """Add the graph's calls, and its outputs as the network's results."""
        is_traced = self.module is not None
        for node in graph.nodes:
            if node.op == "placeholder" and is_traced:
                self.network.inputs.append(node.name)
                if node.args:
                    self.network.defaults[node.name] = node.args[0]
            elif node.op == "placeholder":
                self._read_type(node)
            elif node.op == "output":
                self.network.results = _fill(node.args[0])
            elif node.op != "get_attr":
                self._read_call(node)
        check_writes(self.network)

    def _read_type(self, node: Any) -> None:
        """Note an input's shape as the exporter has it: numbers where it is fixed."""
        value = node.meta.get("val")
        if node.name in self.network.inputs and hasattr(value, "dtype"):
            shape = tuple(n if isinstance(n, int) else None for n in value.shape)
            self.network.types[node.name] = (str(value.dtype).removeprefix("torch."), shape)

    def _read_call(self, node: Any) -> None:
        name, base = _name_operator(node)
        place, owner = _find_place(node), _find_owner(node)
        if base in _CHECKS:
            return
        arguments, keywords = _fill(node.args), _fill(dict(node.kwargs))
        if node.op == "call_module":
            layer = _find_attribute(self.module, node.target)
            name, base, arguments, keywords = self._open_layer(node, layer, arguments, keywords)
        try:
            self.network.calls.append(make_call(name, base, arguments, keywords, (node.name,), place, owner))
        except Refusal as refusal:
            self.network.refuse(name, place, str(refusal))

    def _open_layer(self, node: Any, layer: Any, arguments: Any, keywords: Any) -> tuple[str, str, Any, Any]:
        """Return a layer that ``torch.fx`` cannot trace into as a call of the function that it is."""
        kind = type(layer).__name__
        if not kind.startswith("BatchNorm"):
            return kind, kind, arguments, keywords
        refs: list[Any] = []
        for part in ("running_mean", "running_var", "weight", "bias"):
            tensor = getattr(layer, part)
            if tensor is not None:
                self.tensors.take(f"{node.name}:{part}", f"{node.target}.{part}", tensor)
            refs.append(None if tensor is None else Ref(f"{node.name}:{part}"))
        training = layer.training or layer.running_mean is None
        return kind, "functional.batch_norm", (*arguments, *refs, training, layer.momentum, layer.eps), keywords


def _fill(argument: Any) -> Any:
    """Return a node's arguments with :class:`Ref` in the place of nodes."""
    from torch import fx

    if isinstance(argument, fx.Node):
        return Ref(argument.name)
    if isinstance(argument, (list, tuple)):
        made = [_fill(x) for x in argument]
        return made if isinstance(argument, list) else tuple(made)
    if isinstance(argument, dict):
        return {key: _fill(x) for key, x in argument.items()}
    return argument


def _name_operator(node: Any) -> tuple[str, str]:
    """Return an operator's name for messages, and for the table of rules."""
    target = node.target
    if isinstance(target, str):
        return target, target
    if hasattr(target, "_schema"):
        return str(target), target._schema.name.rpartition("::")[2]
    module, name = getattr(target, "__module__", "") or "", getattr(target, "__name__", str(target))
    if module.startswith("torch.nn.functional") or module == "torch._C._nn":
        return f"torch.nn.functional.{name}", f"functional.{name}"
    is_known = (
        module.startswith("torch") or module in ("_operator", "builtins", "") or type(target).__name__ == "builtin_function_or_method"
    )
    return f"{module}.{name}", name if is_known else f"{module}.{name}"


def _find_place(node: Any) -> str:
    """Return a node's name and module, and the line that it comes from where that is known: the innermost one outside of PyTorch."""
    trace = node.meta.get("stack_trace") or node.stack_trace or ""
    lines = [line.strip() for line in trace.splitlines() if line.strip().startswith("File ")]
    lines = [line for line in lines if "/torch/" not in line.replace("\\", "/")] or lines
    owner = _find_owner(node)
    return " ".join([node.name, *([f"of {owner}"] if owner else []), *([f"({lines[-1]})"] if lines else [])])


def _find_owner(node: Any) -> str:
    """Return the path of the module that a node belongs to."""
    stack: Sequence[Any] = list((node.meta.get("nn_module_stack") or {}).values())
    path = stack[-1][0] if stack else ""
    return str(path).removeprefix("L['self']").removeprefix(".").replace("slice(None, None, None)", "")
