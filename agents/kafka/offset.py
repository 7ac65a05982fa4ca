"""The type of a position in a Kafka log, so that mypy tells it from a trigger interval, a number of records or a time."""

from typing import NewType

Offset = NewType("Offset", int)
"""Number of a record in its partition, or of the next one to be read. Columns and records of a topic hold plain integers."""
