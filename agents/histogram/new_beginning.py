"""Where a new epoch of a histogram begins: a window of the public calendar, and the record that its clock trusts."""

from collections.abc import Iterator

from susurrus.agents.histogram.public_progress import read_progress
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.runtime.initial_offsets import Origin
from susurrus.agents.runtime.new_beginning import FirstWindow, NewBeginning
from susurrus.mechanisms.calendar import WindowStart
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.topics.progress import Progress
from susurrus.topics.spec import PROGRESS
from susurrus.topics.wire.timestamps import format_time

NEW_EPOCH = "run `susurrus ledger new-epoch`, which charges again what it publishes again"
"""The way out of lost state."""


class HistogramBeginning(NewBeginning):
    """Where a new epoch of one histogram may begin.

    The constructor raises ConfigurationError for a first record that one producer could choose for all.
    """

    def __init__(
        self, settings: HistogramSettings, guarantee: Guarantee, wanted: FirstWindow, origin: Origin | None
    ) -> None:
        if isinstance(origin, int) and settings.clock.chosen.forgeable:
            raise ConfigurationError(
                f'--from {format_time(origin)}: producers choose the stamps with clock.kind="{settings.clock.kind}", so '
                'one forged stamp could decide which records of all producers count; use "latest" or "earliest"'
            )
        self.guarantee = guarantee
        self._settings, self._wanted, self._origin = settings, wanted, origin

    def announced(self, clients: Clients) -> Iterator[Progress]:
        """What the topic of progress says."""
        return (said for _, said in read_progress(clients, self._settings.topic(PROGRESS.name)))

    def at(self, now: int, newest: int | None) -> tuple[int, Origin]:
        """See `NewBeginning.at`."""
        calendar, clock, shown = self._settings.calendar, self._settings.clock, self._settings.window.instant_text
        live = clock.chosen.live
        wanted = self._wanted
        if isinstance(wanted, int):
            first: int = calendar.window_start(calendar.window_at(wanted))
            if first != wanted:
                raise ConfigurationError(
                    f"--first-window {shown(wanted)}: is not the start of a window; use {shown(first)}"
                )
        else:
            current: int = calendar.window_start(calendar.window_at(now))
            following: int = calendar.end_of(WindowStart(current))
            if not live:
                current = newest if newest is not None else self._settings.start.first_window or 0
                following = current if newest is None else calendar.end_of(WindowStart(newest))
            elif newest is not None:
                following = max(following, calendar.end_of(WindowStart(newest)))
            first = following if wanted == "next" else current
        if clock.until is not None and first >= clock.until:
            raise ConfigurationError(
                f"--first-window: nothing of the archive is left, the last published window begins at {shown(newest or 0)}; "
                "name a window before clock.until"
            )
        if self._origin is not None:
            return first, self._origin
        if not live:
            return first, self._settings.start.from_
        if first > now:
            return first, "latest"
        # The stamp of one producer must not decide where the records of all begin.
        return first, "earliest" if clock.chosen.forgeable else first - self._settings.max_future
