"""The perturbers of the thresholds that were published, as far as reports name them."""

from collections.abc import Sequence

from susurrus.agents.kafka.clients import Clients
from susurrus.mechanisms.errors import Refusal
from susurrus.mechanisms.local.hybrid import Hybrid
from susurrus.topics import threshold as threshold_codec
from susurrus.topics.wire.packing import MalformedRecord


class Thresholds:
    """Reads a topic of thresholds, by its full name, when reports name an unknown version."""

    def __init__(self, clients: Clients, topic: str) -> None:
        self._clients, self._topic = clients, topic
        self._next = 0
        self._known: dict[int, Hybrid] = {}

    def in_force(self, named: Sequence[int]) -> dict[int, Hybrid]:
        """The perturbers of those of the named versions that are in force, by version. Raises Refusal for a record that is not a
        threshold.

        The previous one still counts: its reports may have been under way when the new one came. A client can only name a version
        that was committed, so one reading decides.
        """
        if not self._known.keys() >= set(named):
            self._read()
        oldest = max(self._known, default=0) - 1
        return {version: self._known[version] for version in named if version >= oldest and version in self._known}

    def _read(self) -> None:
        for _, value, offset in self._clients.read(self._topic, self._next, group="threshold", complete=False):
            self._next = offset + 1
            try:
                threshold = threshold_codec.decode(value or b"")
            except MalformedRecord as error:
                raise Refusal(
                    f"topic={self._topic} offset={offset}: {error}", "find out who else writes to it"
                ) from error
            self._known[threshold.version] = Hybrid(threshold.epsilon, threshold.alpha)
