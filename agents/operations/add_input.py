"""Adds a raw topic to a pipeline that runs: `susurrus topics add-input`.

The command only asks, by a record in the ledger. Source 0 of route finds it at its next look, which is a public instant. It cuts
the topic's log there, and announces from which interval on the topic counts (agents/histogram/growth.py). So nothing in the topic,
and no load of a worker, decides what becomes of another record: docs/guarantees/membership.md.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from susurrus.agents.config.settings import Settings
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.raw_topics import read_ledger, topics_of
from susurrus.agents.kafka.requests import write_one
from susurrus.agents.kafka.topics import create_topics
from susurrus.agents.runtime.budget import Charges, budget_of, periods_of, spans_of, spend_of
from susurrus.agents.runtime.initial_offsets import check_raw
from susurrus.agents.runtime.pipeline import Pipeline
from susurrus.mechanisms.errors import BudgetExhausted, ConfigurationError, Refusal, SusurrusError
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.mechanisms.periods import ChargedSpan, Periods
from susurrus.topics import ledger as codec
from susurrus.topics.charges import Charge
from susurrus.topics.spec import LEDGER

_SECONDS: Final = 30.0


def add_input(pipeline: Pipeline[Any], clients: Clients, topic: str) -> list[str]:
    """Ask for a raw topic more, and make room for it in the pipeline's own topics; one line per topic for the operator.

    Raises ConfigurationError where this pipeline cannot read the topic, Refusal where the topic can carry no guarantee or the
    pipeline runs with another configuration, BudgetExhausted where the charges on it leave no room, KafkaException.
    """
    settings = pipeline.settings
    records = read_ledger(settings, clients)
    _check(settings, topic, records)
    known = topics_of(settings, clients, records)
    if topic in known:
        return [f"exists   {topic} is read already"]
    clients.partitions_to_read(topic)
    check_raw(settings, clients, topic)
    _check_budget(pipeline, clients, (*known, topic), records)
    lines = create_topics(settings, clients.admin(), (*known, topic), clients.raw.admin())
    _write(settings, clients, codec.AddedTopic(topic=topic, at=int(time.time() * 1000)))
    lines.append(f"asked    {topic}: it counts from the next trigger on, with what is written from then on")
    return lines


def _check(settings: Settings, topic: str, records: list[codec.LedgerRecord]) -> None:
    if not settings.several_topics:
        raise ConfigurationError(
            f'pipeline.kind="{settings.kind}": reads one topic', "make a pipeline of its own for the other"
        )
    if settings.clock.until is not None:
        raise ConfigurationError(
            f'clock.kind="{settings.clock.kind}": an archive has what it had when the pipeline began',
            "name all of its topics as input.topics, and give the pipeline a new name",
        )
    if settings.is_own(topic):
        raise ConfigurationError(f"topic={topic} belongs to this pipeline", "name a topic of raw events")
    if not settings.input.may_read(topic):
        raise ConfigurationError(
            f'topic={topic}: input.topic_pattern="{settings.input.topic_pattern}" does not match it',
            "give that topic to another pipeline",
        )
    config = next((record for record in records if isinstance(record, codec.Config)), None)
    if config is None:
        raise ConfigurationError(
            f'pipeline.name="{settings.pipeline.name}": has not begun', "write the topic into input.topics instead"
        )
    if changed := codec.changed_fields(config, settings.published_fields(), settings.digest_of_default):
        raise Refusal(f"the pipeline runs with other values of {', '.join(changed)}", "use its configuration")


def _check_budget(
    pipeline: Pipeline[Any], clients: Clients, topics: tuple[str, ...], records: list[codec.LedgerRecord]
) -> None:
    total, promise = budget_of(pipeline.settings), pipeline.per_window()
    if total is None or promise is None:
        return
    charges = Charges(pipeline.settings, clients, lambda: topics).read(complete=True)
    if (periods := periods_of(pipeline.settings)) is not None:
        fits = _fit(periods, charges, list(_open_windows(pipeline.settings, promise, records)), _own(pipeline, records))
    else:
        fits = total.windows_left(spend_of(charges), promise) > 0
    if not fits:
        raise BudgetExhausted(
            f"budget: epsilon={total.epsilon:g}, delta={total.delta:g} has no room for another window with what was charged on "
            f"topic={topics[-1]}",
            "raise [budget] in the open, or give that topic to a pipeline of its own",
        )


def _own(pipeline: Pipeline[Any], records: list[codec.LedgerRecord]) -> tuple[str, str]:
    """(pipeline, epoch) of the charges of what is published now. What an epoch before has published is another release."""
    return pipeline.settings.application, next((one.epoch for one in records if isinstance(one, codec.Epoch)), "")


def _open_windows(settings: Settings, promise: Guarantee, records: list[codec.LedgerRecord]) -> Iterator[ChargedSpan]:
    """The windows that are charged on a topic that is added now: those that are open, late ones included, and not skipped. Later
    ones are skipped where there is no room."""
    calendar = settings.calendar
    first = next((one.first_window for one in records if isinstance(one, codec.Start)), 0)
    skipped = {one.window for one in records if isinstance(one, codec.WindowDecision) and not one.begun}
    for window in calendar.open_windows(calendar.interval_at(int(time.time() * 1000))):
        if (begin := calendar.window_start(window)) >= first and begin not in skipped:
            yield ChargedSpan(begin, calendar.window_end(window), promise)


def _fit(periods: Periods, charges: Sequence[Charge], windows: Sequence[ChargedSpan], own: tuple[str, str]) -> bool:
    """Whether all of these windows of a pipeline have room at once. charges: on all of its topics, the one that is added, too."""
    begins = {window.begin for window in windows}
    others = spans_of(one for one in charges if (one.pipeline, one.epoch) != own or one.window not in begins)
    return all(
        periods.allows([*others, *windows[:at], *windows[at + 1 :]], window) for at, window in enumerate(windows)
    )


def _write(settings: Settings, clients: Clients, record: codec.AddedTopic) -> None:
    if not write_one(clients.producer(), settings.topic(LEDGER.name), *codec.encode(record), _SECONDS):
        raise SusurrusError(
            f"the brokers did not take the record within {_SECONDS:.0f} s", "look at them, and try again"
        )
