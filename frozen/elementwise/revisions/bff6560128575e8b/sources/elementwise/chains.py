"""The chains that are built and frozen. Their numbers are their places: new ones go to the end."""

from __future__ import annotations

from harness.spec.expressions import parse_chain

_TEXTS = {
    # What every network has.
    "add": "a: T, b: T -> y: T; y = a + b",
    "mul": "a: T, b: T -> y: T; y = a * b",
    "add_bias": "x: T, b: T[columns] -> y: T; y = x + b",
    "axpby": "x: T, y: T, a: f32[], b: f32[] -> z: T; z = a * x + b * y",
    "scale": "x: T, a: f32[] -> y: T; y = a * x",
    # Activations, and their gradients from what went in.
    "relu": "x: T -> y: T; y = relu(x)",
    "relu_grad": "dy: T, x: T -> dx: T; dx = dy if x > 0 else 0",
    "gelu_bias": "x: T, b: T[columns] -> y: T; y = gelu(x + b)",
    "gelu_grad": "dy: T, x: T -> dx: T; dx = dy * gelu_grad(x)",
    "gelu_tanh": "x: T -> y: T; y = gelu_tanh(x)",
    "gelu_tanh_grad": "dy: T, x: T -> dx: T; dx = dy * gelu_tanh_grad(x)",
    "silu": "x: T -> y: T; y = silu(x)",
    "silu_grad": "dy: T, x: T -> dx: T; dx = dy * silu_grad(x)",
    "tanh": "x: T -> y: T; y = tanh(x)",
    "tanh_grad": "dy: T, y: T -> dx: T; dx = dy * tanh_grad_from_y(y)",
    "sigmoid": "x: T -> y: T; y = sigmoid(x)",
    # Gated ones.
    "swiglu": "a: T, b: T -> y: T; y = swiglu(a, b)",
    "swiglu_grad": "dy: T, a: T, b: T -> da: T, db: T; da = dy * b * silu_grad(a); db = dy * silu(a)",
    "geglu": "a: T, b: T -> y: T; y = geglu(a, b)",
    # Dropout, its gradient (the mask is drawn again), and what ends a transformer's block.
    "dropout": "x: T, p: f32[] -> y: T; y = dropout(x, p)",
    "bias_dropout_residual": "x: T, b: T[columns], r: T, p: f32[] -> y: T; y = r + dropout(x + b, p)",
    # Dtypes, masks, comparisons.
    "to_float32": "x: T -> y: f32; y = x",
    "to_bfloat16": "x: T -> y: bf16; y = x",
    "to_float16": "x: T -> y: f16; y = x",
    "where": "a: T, b: T, m: bool -> y: T; y = a if m else b",
    "greater": "a: T, b: T -> m: bool; m = a > b",
    # A value per row: gradients of norms, gates.
    "scale_rows": "x: T, a: f32[rows] -> y: T; y = x * a",
    # Steps of optimizers on a gradient of dtype T with an fp32 parameter, whose 16-bit copy is written with it.
    "sgd": (
        "g: T, p: f32, m: f32, lr: f32[], momentum: f32[] -> p2: f32, m2: f32, copy: T; m2 = momentum * m + g; p2 = p - lr * m2; copy = p2"
    ),
    "lion": (
        "g: T, p: f32, m: f32, lr: f32[], beta1: f32[], beta2: f32[], decay: f32[] -> p2: f32, m2: f32; "
        "p2 = p - lr * (sign(beta1 * m + (1 - beta1) * g) + decay * p); m2 = beta2 * m + (1 - beta2) * g"
    ),
}

CHAINS = tuple(parse_chain(name, text) for name, text in _TEXTS.items())
NUMBERS = {chain.name: number for number, chain in enumerate(CHAINS)}
