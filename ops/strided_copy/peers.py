"""PyTorch as a peer of strided_copy, eager and compiled: a copy per piece, one concatenation, or a pad. Imported on a real device only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from harness.peers.libraries import compile_for_shapes, view_in_torch
from harness.spec import Peer

from .population import MAX_PIECES

_MIDDLE, _NUM_AXES = 2, 5
_AXES = ("b", "n", "c", "d")
# What joins xs to y or pads one: elements in front of x along each axis are the third argument.
Run = Callable[[Sequence[Any], Sequence[Any], Sequence[int]], None]


def copy_pieces(xs: Sequence[Any], ys: Sequence[Any], places: Sequence[int]) -> None:
    """Copy each piece to its own place: ``contiguous`` of a permuted or sliced view."""
    for x, y in zip(xs, ys, strict=True):
        y.copy_(x)


def join(xs: Sequence[Any], ys: Sequence[Any], places: Sequence[int]) -> None:
    """Concatenate as ``torch.cat`` does where it is given its output."""
    import torch

    torch.cat(tuple(xs), dim=_MIDDLE, out=ys[0])


def join_compiled(xs: Sequence[Any], ys: Sequence[Any], places: Sequence[int]) -> None:
    """Concatenate, for a compiler that makes one launch of it and the copy."""
    import torch

    ys[0].copy_(torch.cat(tuple(xs), dim=_MIDDLE))


def pad(xs: Sequence[Any], ys: Sequence[Any], places: Sequence[int]) -> None:
    """Do what ``torch.nn.functional.pad`` does to its output: clear it, and copy into it."""
    part = ys[0]
    part.zero_()
    for axis, (at, extent) in enumerate(zip(places, xs[0].shape, strict=True)):
        part = part.narrow(axis, at, extent)
    part.copy_(xs[0])


def pad_compiled(xs: Sequence[Any], ys: Sequence[Any], places: Sequence[int]) -> None:
    """Pad, for a compiler that makes one launch of it and the copy."""
    import torch

    margins: list[int] = []
    for at, inner, outer in reversed(list(zip(places, xs[0].shape, ys[0].shape, strict=True))):
        margins += [at, outer - inner - at]
    ys[0].copy_(torch.nn.functional.pad(xs[0], margins))


def find_task(shapes: Sequence[Sequence[int]], whole: Sequence[int] | None, places: Sequence[int]) -> tuple[str, str]:
    """Return what pieces of these shapes ask for (``copy``, ``join`` or ``pad``), or "" and why PyTorch has no one function for it."""
    if whole is None:
        return "copy", ""
    joined = [sum(s[k] for s in shapes) if k == _MIDDLE else shapes[0][k] for k in range(_NUM_AXES)]
    if not any(places) and joined == list(whole):
        return "join", ""
    fits = all(0 <= at <= at + inner <= outer for at, inner, outer in zip(places, joined, whole, strict=True))
    if len(shapes) == 1 and fits:
        return "pad", ""
    return "", "pieces that are cut, or joined with gaps around them, are no one call of PyTorch"


EAGER: dict[str, Run] = {"copy": copy_pieces, "join": join, "pad": pad}
COMPILED: dict[str, Run] = {"copy": copy_pieces, "join": join_compiled, "pad": pad_compiled}


class _TorchCopies:
    """A :class:`harness.spec.Launchable` of the function that a problem asks for."""

    def __init__(self, *, is_compiled: bool) -> None:
        import torch

        self._torch = torch
        self._runs = {task: compile_for_shapes(torch, run) for task, run in COMPILED.items()} if is_compiled else EAGER

    def supports(self, **arguments: Any) -> str:
        """Return "", or why there is no function for a problem."""
        return _ask(arguments)[1]

    def workspace_bytes(self, **arguments: Any) -> int:
        """Return 0: PyTorch holds its own."""
        return 0

    def launch(self, *, workspace: int, stream: int, **arguments: Any) -> None:
        """Queue the function on a stream."""
        task, reason = _ask(arguments)
        if not task:
            raise ValueError(reason)
        xs, ys = ([view_in_torch(self._torch, a) for a in _list_arrays(arguments, stem)] for stem in "xy")
        with self._torch.cuda.stream(self._torch.cuda.ExternalStream(stream)):
            self._runs[task](xs, ys, _list_places(arguments))


def _list_arrays(arguments: dict[str, Any], stem: str) -> list[Any]:
    return [arguments[f"{stem}{i}"] for i in range(MAX_PIECES) if arguments[f"{stem}{i}"] is not None]


def _list_places(arguments: dict[str, Any]) -> list[int]:
    return [0, *(int(arguments[f"at_{axis}"]) for axis in _AXES)]


def _ask(arguments: dict[str, Any]) -> tuple[str, str]:
    whole = arguments["y0"].shape if arguments["whole"] else None
    return find_task([x.shape for x in _list_arrays(arguments, "x")], whole, _list_places(arguments))


PEERS = (
    Peer("torch_eager", "torch", lambda: _TorchCopies(is_compiled=False)),
    Peer("torch_compile", "torch", lambda: _TorchCopies(is_compiled=True), compiles=True),
)
