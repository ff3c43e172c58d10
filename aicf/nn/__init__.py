"""Layers: modules that own parameters. A model does not depend on a backend."""

from aicf.nn.activations import GELU, ReLU, Sigmoid, SiLU, Softmax, Tanh
from aicf.nn.layers import Dropout, Embedding, LayerNorm, Linear, RMSNorm
from aicf.nn.losses import BCEWithLogitsLoss, CrossEntropyLoss, MSELoss
from aicf.nn.module import Buffer, Module, ModuleList, Parameter, Sequential

__all__ = [
    "GELU",
    "BCEWithLogitsLoss",
    "Buffer",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "LayerNorm",
    "Linear",
    "MSELoss",
    "Module",
    "ModuleList",
    "Parameter",
    "RMSNorm",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Tanh",
]
