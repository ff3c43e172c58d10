"""Is it right? Inputs, the float64 reference, supervised runs, and the verdict."""
