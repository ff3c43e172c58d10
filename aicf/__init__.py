"""The framework on the frozen kernel set. Importing this package reads nothing, builds nothing and opens no device."""
