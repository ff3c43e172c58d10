"""The verbs of the command line, one file each.

A verb is one function ``run`` whose parameters are declared with the types of :mod:`harness.commands.options`; its module's docstring is
its help text. It returns an exit code and raises the project's errors, which ``harness.__main__`` turns into one message and a status.
Only the verb that is called is imported, so a module imports what it needs at its top; a function imports only what is slow to import
and rarely needed.
"""
