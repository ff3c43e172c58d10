"""The frozen format in one place: what ``harness`` writes, and what ``aicf`` and ``deploy`` read; ``docs/frozen.md`` describes it.

Importing any of it but :mod:`contract.building` and :mod:`contract.decision` needs Python's standard library alone, and
:mod:`contract.expressions` NumPy.
"""
