
def infer(types: Types, attrs: Attrs) -> tuple[Type]:
    """Return C's type; raises TypeError or ValueError for what does not fit."""
    dtype = same_floats("@{ op }@", ("a", "b"), types)
    a, b = (t.shape for t in types if t is not None)
    if len(a) != 2 or len(b) != 2 or a[1] != b[0]:
        raise ValueError(f"@{ op }@: expected a [M, K] and b [K, N], got shapes {a} and {b}")
    if attrs["act"] not in ACTIVATIONS:
        raise ValueError(f"@{ op }@: act: expected one of {', '.join(ACTIVATIONS)}, got {attrs['act']!r}")
    return (Type(dtype, (a[0], b[1])),)


def compute(arrays: Arrays, attrs: Attrs) -> tuple[Any]:
    """Return C; arrays are float64."""
    a, b = arrays
    z = a @ b
    return (np.where(z < 0.0, 0.0, z) if attrs["act"] == "relu" else z,)


def propagate(g: Backward, dz: V) -> tuple[V | None, ...]:
    """Return the gradients of A and B from that of their product."""
    da = g.one("MatMul", dz, g["b"], transpose_b=True) if "a" in g.needed else None
    return (da, g.one("MatMul", g["a"], dz, transpose_a=True) if "b" in g.needed else None)


def find_factors(needed: set[str]) -> set[str]:
    """Return the inputs that others' gradients read."""
    return ({"b"} if "a" in needed else set()) | ({"a"} if "b" in needed else set())
