
def infer(types: Types, attrs: Attrs) -> tuple[Type]:
    """Return Y's type; raises TypeError or ValueError for what does not fit."""
    dtype = same_floats("@{ op }@", ("x", "scale", "shift"), types)
    shapes = [t.shape for t in types if t is not None]
    if len(shapes[0]) != 1 or len(set(shapes)) > 1:
        raise ValueError(f"@{ op }@: expected three vectors of one length, got shapes {', '.join(map(str, shapes))}")
    if attrs["act"] not in ACTIVATIONS:
        raise ValueError(f"@{ op }@: act: expected one of {', '.join(ACTIVATIONS)}, got {attrs['act']!r}")
    return (Type(dtype, shapes[0]),)


def compute(arrays: Arrays, attrs: Attrs) -> tuple[Any]:
    """Return Y; arrays are float64."""
    x, scale, shift = arrays
    z = x * scale + shift
    return (np.where(z < 0.0, 0.0, z) if attrs["act"] == "relu" else z,)


def propagate(g: Backward, dz: V) -> tuple[V | None, ...]:
    """Return the inputs' gradients from that of X * scale + shift."""
    return (g.mul(dz, g["scale"]) if "x" in g.needed else None, g.mul(dz, g["x"]) if "scale" in g.needed else None, dz)


def find_factors(needed: set[str]) -> set[str]:
    """Return the inputs that others' gradients read."""
    return ({"scale"} if "x" in needed else set()) | ({"x"} if "scale" in needed else set())
