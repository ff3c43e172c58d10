"""How an op does on problems that nobody listed: drawn from its population, timed as a user gets it, beside the libraries."""
