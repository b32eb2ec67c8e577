"""The verbs of ``python -m experiments``, one per file.

A verb's module imports little; what is slow (pandas, matplotlib, the harness) is imported where
it is used, so that a mistake in the command line shows at once.
"""
