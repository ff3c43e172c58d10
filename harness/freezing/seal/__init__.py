"""A sealed kernel: its sources, its manifest, the op's interface and cost as data, and building it again from these alone."""
