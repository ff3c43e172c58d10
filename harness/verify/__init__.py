"""Is it right? Inputs, the float64 reference, runs under watch, and the judgement."""
