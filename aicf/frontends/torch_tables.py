"""What readers of PyTorch's graphs share: tensors taken over, calls by the table of rules, and writes in place that would be seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aicf.frontends.network import TRAINING, Call, Network, Refusal, adopt, list_refs
from aicf.frontends.torch_rules import RULES, Rule
from aicf.nn import Buffer, Parameter


class Tensors:
    """A network's parameters and buffers as they are taken over: one that is used under several names is one."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._known: dict[int, Parameter | Buffer] = {}

    def take(self, name: str, path: str, tensor: Any) -> None:
        """Give a value of the network a tensor of PyTorch's."""
        import torch as pytorch

        if name in self._network.owners:
            return
        made = self._known.get(id(tensor))
        if made is None:
            trained = isinstance(tensor, pytorch.nn.Parameter) and tensor.is_floating_point()
            try:
                made = self._known[id(tensor)] = adopt(read_tensor(tensor), trained=trained)
            except TypeError as error:
                self._network.refuse("tensor", path, str(error))
                return
            made.requires_grad = trained and tensor.requires_grad
        self._network.own(name, path, made)


def read_tensor(tensor: Any) -> np.ndarray[Any, Any]:
    """Return a tensor's values; on the host its own memory."""
    import ml_dtypes
    import torch as pytorch

    host = tensor.detach().cpu()
    is_brain = host.dtype == pytorch.bfloat16
    made: np.ndarray[Any, Any] = host.contiguous().view(pytorch.int16).numpy() if is_brain else host.numpy()
    return made.view(ml_dtypes.bfloat16) if is_brain else made


def make_call(
    operator: str, base: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any], outputs: tuple[str, ...], place: str, owner: str
) -> Call:
    """Return a call of an operator by its name in the table; raises :class:`Refusal` for what has no rule there."""
    writes, found = find_rule(base)
    if found is None:
        raise Refusal("this operator is not supported")
    found.check(arguments, keywords)
    arguments, filled = follow_training(base, arguments, keywords)
    return Call(operator, found.function, arguments, outputs, place, owner, filled, writes, found.is_view)


def find_rule(name: str) -> tuple[bool, Rule | None]:
    """Return whether an operator writes to its first argument, and its rule: that of the one which does not."""
    plain = name.removeprefix("functional.")
    found = RULES.get(name) or RULES.get(plain)
    if found is not None or not plain.endswith("_"):
        return False, found
    return True, RULES.get(plain[:-1])


def follow_training(name: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a call's arguments; those of dropout that was captured in training mode follow the module's mode."""
    if name.rpartition(".")[2] not in ("dropout", "dropout_"):
        return arguments, dict(keywords)
    given = dict(zip(("input", "p", "training", "inplace"), arguments, strict=False)) | dict(keywords)
    given |= {"training": TRAINING if given.get("training", True) else False, "inplace": False}
    if "train" in given:
        given["training"] = TRAINING if given.pop("train") else False
    return (), given


def check_writes(network: Network) -> None:
    """Refuse writes in place that somebody would see: to what is read again, to a view, and to inputs and parameters."""
    makers = {name: call for call in network.calls for name in call.outputs}
    reads = [{*list_refs(list(call.inputs)), *list_refs(dict(call.keywords))} for call in network.calls]
    for i, call in enumerate(network.calls):
        if not call.writes:
            continue
        (target, *_) = [*list_refs(call.inputs[:1]), *list_refs(call.keywords.get("input")), ""]
        maker = makers.get(target)
        readers = [j for j, names in enumerate(reads) if target in names and j != i]
        is_read = any(j > i or network.calls[j].is_view for j in readers) or target in list_refs(network.results)
        if maker is None or maker.is_view or is_read:
            what = target or "its input"
            network.refuse(call.operator, call.place, f"it changes {what} in place, which is an input, a view, or read elsewhere")
