"""Libraries of others whose calls may stand for a kernel of the frozen set: how each is found, called, and for which calls of an op."""
