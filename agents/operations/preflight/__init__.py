"""``susurrus preflight``: what a data engineer wants to know before a pipeline meets production, one file for each group of checks.

It is more than what a worker checks when it starts (probe.py): a worker runs with a warning of these, but not for long or not well.
Nothing is changed: one entry of the transaction coordinator and one file in the data directory come and go.
"""
