"""Checks what a worker needs before it joins the group: Kafka's brokers, credentials, topics, rights; the rows' schema registry.

One sentence names the missing setting or right and what to do. Otherwise every client and every task would report it in its own
way. The worker waits, with a log line, for what can still appear: Kubernetes starts workers before names, brokers, registries and
topics exist. What an operator must fix ends the worker with exit code 2. ``susurrus status`` shows the same sentence.

What it looks at is in brokers.py and rights.py; `susurrus preflight` (preflight/) looks at more.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from susurrus.agents.finding import Finding, refuse, sentences
from susurrus.agents.formats.outputs import looks_of
from susurrus.agents.operations import tls
from susurrus.agents.operations.brokers import admin_of, raw_admin_of, reach_brokers, unanswered
from susurrus.agents.operations.rights import rights, topics
from susurrus.agents.runtime.pipeline import Pipeline
from susurrus.mechanisms.errors import ConfigurationError, RegistryAway

log = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = (0.5, 1.0, 2.0, 5.0)
_SAY_AGAIN_SECONDS: Final = (10.0, 30.0, 60.0, 300.0)


@dataclass(frozen=True, slots=True)
class Ready:
    """A cluster on which the worker can start. partitions: of all stages together, the most tasks one worker may get."""

    brokers: int
    partitions: int


def wait_until_ready(pipeline: Pipeline[Any], show: Callable[[Finding | None], None]) -> Ready:
    """Return what was found when a worker can start. ``show`` gets what the worker waits for, and None at the end.

    Raises ConfigurationError for what does not pass by itself. A signal's exception ends the wait at once.
    """
    said, say_at, pauses = "", 0.0, _lasting(_PAUSE_SECONDS)
    while not isinstance(found := _in_thread(lambda: look(pipeline)), Ready):
        text = sentences(found)
        if not all(finding.waits for finding in found):
            refuse(found)
        show(found[0])
        if text != said:
            said, say_at, silences = text, 0.0, _lasting(_SAY_AGAIN_SECONDS)
        if (now := time.monotonic()) >= say_at:
            log.warning("not started yet: %s", said)
            say_at = now + next(silences)
        time.sleep(next(pauses))
    if said:
        log.info("nothing is missing any more")
    show(None)
    return found


def _lasting(seconds: tuple[float, ...]) -> Iterator[float]:
    """Yields these seconds, and then the last again and again."""
    return chain(seconds, repeat(seconds[-1]))


def _in_thread(work: Callable[[], Ready | list[Finding]]) -> Ready | list[Finding]:
    """Do it in another thread: a client waits in C, which no signal interrupts. The main thread waits where a signal does."""
    done: Future[Ready | list[Finding]] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="probe", daemon=True).start()
    return done.result()


def look(pipeline: Pipeline[Any]) -> Ready | list[Finding]:
    """Why a worker of this pipeline cannot start now, if so. Takes well under two seconds on a healthy cluster."""
    settings = pipeline.settings
    if settings.kafka.embedded:
        return Ready(brokers=1, partitions=0)  # in this process; it creates a topic when it is first named
    errors: list[KafkaError] = []
    try:
        admin = admin_of(settings, errors)
        brokers = reach_brokers(settings, admin, errors)
        if isinstance(brokers, Finding):
            return [brokers]
        if settings.reads_raw and (refused := tls.for_the_raw_consumer(settings.kafka)) is not None:
            return [refused]
        raw_admin = raw_admin_of(settings, admin, errors)
        if isinstance(raw_admin, Finding):
            return [raw_admin]
        partitions = topics(pipeline, admin, raw_admin)
        if not isinstance(partitions, int):
            return partitions if partitions[0].waits else partitions + rights(settings, admin)
        if missing := rights(settings, admin):
            return missing
        for _ in looks_of(settings.output, settings.schemas, settings.namespace):
            pass
        return Ready(brokers, partitions)
    except ConfigurationError as error:
        return [Finding.of(error, "output.registry" if isinstance(error, RegistryAway) else "settings")]
    except KafkaException as error:
        return [unanswered(settings, error.args[0], errors)]
