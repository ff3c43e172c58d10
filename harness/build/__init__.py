"""From sources to machine code: compilers, the store of what was built, and what the machine code is like."""
