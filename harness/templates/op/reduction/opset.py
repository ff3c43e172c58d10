
def infer(types: Types, attrs: Attrs) -> tuple[Type]:
    """Return Y's type; raises TypeError or ValueError for what does not fit."""
    dtype = same_floats("@{ op }@", ("x",), types)
    (shape,) = (t.shape for t in types if t is not None)
    if len(shape) != 2:
        raise ValueError(f"@{ op }@: x: expected [rows, columns], got shape {shape}")
    if attrs["act"] not in ACTIVATIONS:
        raise ValueError(f"@{ op }@: act: expected one of {', '.join(ACTIVATIONS)}, got {attrs['act']!r}")
    return (Type(dtype, shape[:1]),)


def compute(arrays: Arrays, attrs: Attrs) -> tuple[Any]:
    """Return Y; arrays are float64."""
    z = arrays[0].sum(axis=1)
    return (np.where(z < 0.0, 0.0, z) if attrs["act"] == "relu" else z,)


def propagate(g: Backward, dz: V) -> tuple[V | None, ...]:
    """Return X's gradient from that of the sums: the same for all of a row."""
    rows, columns = g.of("x").shape
    return (g.broadcast(g.reshape(dz, (rows, 1)), (rows, columns)),)


def find_factors(needed: set[str]) -> set[str]:
    """Return the inputs that others' gradients read: none."""
    return set()
