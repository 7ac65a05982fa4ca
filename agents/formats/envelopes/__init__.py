"""Envelopes: what a tool of the field puts around a value, one file each. A new envelope is one file and one line here."""

from typing import Final

from susurrus.agents.formats.envelopes.cloudevents import CloudEvents
from susurrus.agents.formats.envelopes.connect import Connect
from susurrus.agents.formats.envelopes.debezium import Debezium
from susurrus.agents.formats.envelopes.envelope import Bare, Envelope

ENVELOPES: Final[dict[str, type[Envelope]]] = {form.name: form for form in (Bare, Connect, Debezium, CloudEvents)}
"""Every envelope by its name in the configuration."""
