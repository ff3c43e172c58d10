"""From sources to machine code: compilers, the build cache, and figures of the machine code."""
