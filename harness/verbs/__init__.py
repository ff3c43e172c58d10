"""What the verbs do, one function each, shared by the command line and Python.

A verb takes an op by its name, or one that is loaded already, and options by the names that they have on the command line (``-`` is
``_``); what may be given several times is a list. It shows progress unless ``quiet``, prints nothing else, returns what it found, and
raises the project's errors.
"""
