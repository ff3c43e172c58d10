"""``Module``: parameters and buffers under owner paths (``blocks.3.fc1.weight``), and what all layers have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from aicf.backends import Backend, find_backend
from aicf.modes import MODES, refuse_while_recording
from aicf.tensor import Tensor


class Parameter(Tensor):
    """A tensor that is trained."""

    __slots__ = ()

    def __init__(self, values: Any, *, dtype: str | None = None, requires_grad: bool = True, backend: str | Backend | None = None) -> None:
        super().__init__(values, dtype=dtype, requires_grad=requires_grad, backend=backend)


class Buffer(Tensor):
    """A tensor that belongs to a module's state and is not trained."""

    __slots__ = ()


class Module:
    """A layer or a model. Parameters, buffers and modules that are attributes are found; the attribute's name is part of their path."""

    training: bool = True

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the module's outputs; subclasses say how."""
        raise NotImplementedError(f"{type(self).__name__} has no forward()")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return :meth:`forward`'s outputs; what is recorded meanwhile is this module's."""
        if MODES.recorder is None:
            return self.forward(*args, **kwargs)
        with MODES.recorder.scope(self):
            return self.forward(*args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Tensor):
            refuse_while_recording(f"a tensor was kept in {type(self).__name__}.{name}", "return it instead")
        super().__setattr__(name, value)

    def children(self) -> Iterator[tuple[str, Module]]:
        """Yield the modules that are attributes, by name."""
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value

    def modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Yield this module and all below it with their paths."""
        yield prefix, self
        for name, child in self.children():
            yield from child.modules(f"{prefix}.{name}" if prefix else name)

    def named_tensors(self) -> Iterator[tuple[str, Parameter | Buffer]]:
        """Yield parameters and buffers with their owner paths, each once: one that is shared has the path that comes first."""
        seen: set[int] = set()
        for path, module in self.modules():
            for name, value in vars(module).items():
                if isinstance(value, (Parameter, Buffer)) and id(value) not in seen:
                    seen.add(id(value))
                    yield f"{path}.{name}" if path else name, value

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Yield parameters with their owner paths."""
        return ((path, t) for path, t in self.named_tensors() if isinstance(t, Parameter))

    def parameters(self) -> Iterator[Parameter]:
        """Yield the parameters."""
        return (p for _, p in self.named_parameters())

    def train(self, mode: bool = True) -> Self:
        """Put the module and all below it in training mode, or out of it; returns the module."""
        for _, module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Put the module and all below it in evaluation mode; returns the module."""
        return self.train(False)

    def to(self, backend: str) -> Self:
        """Move parameters and buffers to a backend; returns the module."""
        chosen = find_backend(backend)
        for _, tensor in self.named_tensors():
            if tensor.backend is not chosen:
                tensor.data, tensor.backend = chosen.from_host(tensor.backend.to_host(tensor.data)), chosen
                tensor.grad = None
        return self

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Return copies of parameters and buffers in host memory, by owner path."""
        return {path: np.array(t.numpy()) for path, t in self.named_tensors()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Overwrite parameters and buffers; raises ValueError naming what is missing, what nobody owns, and shapes that differ."""
        mine = dict(self.named_tensors())
        missing, unknown = sorted(mine.keys() - state.keys()), sorted(state.keys() - mine.keys())
        if missing or unknown:
            raise ValueError(
                f"state does not fit the module: missing {', '.join(missing) or 'none'}; unknown {', '.join(unknown) or 'none'}"
            )
        for path, tensor in mine.items():
            values = np.asarray(state[path])
            if values.shape != tensor.shape:
                raise ValueError(f"{path}: expected shape {tensor.shape}, got {values.shape}")
        for path, tensor in mine.items():
            source = Tensor(np.asarray(state[path]), dtype=tensor.dtype, backend=tensor.backend)
            tensor.detach().copy_(source)

    def __repr__(self) -> str:
        inner = [f"({name}): {child!r}".replace("\n", "\n  ") for name, child in self.children()]
        return f"{type(self).__name__}({self.describe()}" + "".join(f"\n  {line}" for line in inner) + ("\n)" if inner else ")")

    def describe(self) -> str:
        """Return what is to be seen in the module's representation beside its class."""
        return ""


class ModuleList(Module):
    """Modules by number; it computes nothing."""

    def __init__(self, *modules: Module) -> None:
        for i, module in enumerate(modules):
            setattr(self, str(i), module)

    def __iter__(self) -> Iterator[Module]:
        return (child for _, child in self.children())

    def __len__(self) -> int:
        return sum(1 for _ in self.children())

    def __getitem__(self, index: int) -> Module:
        return list(self)[index]


class Sequential(ModuleList):
    """Modules run one after the other."""

    def forward(self, x: Any) -> Any:
        """Return the last module's output."""
        for module in self:
            x = module(x)
        return x
