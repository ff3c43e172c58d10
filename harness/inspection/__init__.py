"""What did the compiler make of it? Source, PTX and SASS side by side."""
