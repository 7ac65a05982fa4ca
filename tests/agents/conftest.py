"""Hypothesis without deadlines (other work shares the processors) and with the same examples in every run."""

from hypothesis import settings

settings.register_profile("agents", deadline=None, derandomize=True)
settings.load_profile("agents")
