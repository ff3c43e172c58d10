
def compute(inputs: Arrays) -> NDArray[np.float64]:
    """Return X * scale + shift, before the activation."""
    return np.asarray(inputs["x"] * inputs["scale"] + inputs["shift"], dtype=np.float64)


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return the bound of two roundings (or one, fused): u (2 |x scale| + |shift|), and what flushing a denormal costs."""
    magnitude = 2.0 * np.abs(inputs["x"] * inputs["scale"]) + np.abs(inputs["shift"])
    return {"y": np.asarray(2.0 * UNIT_ROUNDOFF * magnitude + 2.0 * SMALLEST_NORMAL, dtype=np.float64)}


def cost(problem: Problem) -> Cost:
    """Return 2 flops an element; three vectors read, one written."""
    n = problem.sizes["n"]
    return Cost(flops=2.0 * n, bytes_read=3.0 * FLOAT_BYTES * n, bytes_written=float(FLOAT_BYTES * n))
