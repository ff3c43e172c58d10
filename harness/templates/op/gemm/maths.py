
def compute(inputs: Arrays) -> NDArray[np.float64]:
    """Return the product, before the activation."""
    return np.asarray(inputs["a"], dtype=np.float64) @ np.asarray(inputs["b"], dtype=np.float64)


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return k u / (1 - k u) |A| |B|: whatever the order of the additions (N. J. Higham, *Accuracy and Stability*, 2002, 3.5).

    Denormal products may be flushed to zero.
    """
    terms = problem.sizes["K"]
    growth = terms * UNIT_ROUNDOFF / (1.0 - terms * UNIT_ROUNDOFF)
    total = np.abs(np.asarray(inputs["a"], dtype=np.float64)) @ np.abs(np.asarray(inputs["b"], dtype=np.float64))
    return {"c": growth * total + (terms + 1) * SMALLEST_NORMAL}


def cost(problem: Problem) -> Cost:
    """Return 2 flops a term of each sum; A and B read, C written."""
    m, n, k = (problem.sizes[name] for name in "MNK")
    return Cost(flops=2.0 * m * n * k, bytes_read=float(FLOAT_BYTES * (m * k + k * n)), bytes_written=float(FLOAT_BYTES * m * n))
