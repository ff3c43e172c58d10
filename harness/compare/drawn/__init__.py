"""How an op performs on problems that nobody listed: drawn from its population, timed as users get it, against the libraries."""
