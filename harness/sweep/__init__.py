"""Which variant is best? Strategies, the screen, the finals, one GPU or many."""
