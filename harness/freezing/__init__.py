"""The frozen set: winners with their sealed sources, and the evidence for choosing them. ``docs/frozen.md`` describes the format.

``store`` keeps it on the disk and finds what disagrees, ``seal`` makes a kernel's manifest and builds it anew, ``gates`` are what a kernel
passes on its way in, and ``decide`` says which takes a bucket. A room imports those before it.
"""
