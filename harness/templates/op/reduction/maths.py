
def compute(inputs: Arrays) -> NDArray[np.float64]:
    """Return the sums of the rows, before the activation."""
    return np.asarray(np.sum(inputs["x"], axis=1, dtype=np.float64))


def tolerance(inputs: Arrays, outputs: Arrays, problem: Problem) -> dict[str, NDArray[np.float64]]:
    """Return n u / (1 - n u) sum |x|: whatever the order of the additions (N. J. Higham, *Accuracy and Stability*, 2002, 4.2).

    Denormal terms may be flushed to zero.
    """
    terms = problem.sizes["columns"]
    growth = terms * UNIT_ROUNDOFF / (1.0 - terms * UNIT_ROUNDOFF)
    total = np.abs(np.asarray(inputs["x"], dtype=np.float64)).sum(axis=1)
    return {"y": growth * total + (terms + 1) * SMALLEST_NORMAL}


def cost(problem: Problem) -> Cost:
    """Return a flop an element; X read, a value a row written."""
    elems = problem.sizes["rows"] * problem.sizes["columns"]
    return Cost(flops=float(elems), bytes_read=float(FLOAT_BYTES * elems), bytes_written=float(FLOAT_BYTES * problem.sizes["rows"]))
