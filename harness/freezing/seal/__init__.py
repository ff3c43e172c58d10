"""A sealed kernel: its sources, its manifest, the op's interface and cost as data, and rebuilding it from these alone."""
