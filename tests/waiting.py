"""How long tests wait for a state before they call it missing: long, because a machine may have other work.

A test waits for what it needs (:func:`tests.broker.wait_for`, ``Pipeline.wait``) and goes on at once when it is there. The limit is
only how soon a test fails that hangs; it says nothing about speed, and no test may pass because of it.
"""

from typing import Final

PATIENCE: Final = 300.0
"""Seconds. Less than pytest's own limit for a test (``timeout`` in pyproject.toml), so that the message says what was missing."""
