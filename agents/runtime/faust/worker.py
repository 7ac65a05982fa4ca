"""Wires a pipeline: one Faust application whose agents feed the partition tasks of its stages.

Faust's part: the application, agents (agents/runtime/agents.py), consumer group and rebalancing, worker process. Ours: batches
(transport.py) and exactly-once partition tasks (agents/runtime/task.py).
"""

import asyncio
import gc
import logging
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import faust
from faust.serializers import codecs
from faust.types import TP

from susurrus.agents import logs
from susurrus.agents.config.sections import ClusterSettings
from susurrus.agents.config.settings import Settings
from susurrus.agents.runtime import crash_points
from susurrus.agents.runtime.agents import agents_of
from susurrus.agents.runtime.batch import InputPartition
from susurrus.agents.runtime.ending import ENDING
from susurrus.agents.runtime.faust.connection import for_aiokafka, for_faust
from susurrus.agents.runtime.faust.elsewhere import Elsewhere
from susurrus.agents.runtime.faust.transport import BatchTransport
from susurrus.agents.runtime.group import Group
from susurrus.agents.runtime.pipeline import Pipeline
from susurrus.agents.runtime.store import abandoned, set_cache_bytes
from susurrus.agents.runtime.supervisor import Supervisor
from susurrus.topics.spec import SOURCES

log = logging.getLogger(__name__)

_CODEC = "susurrus-batch"
_HEARTBEATS_PER_SESSION = 5
_LONGEST_HEARTBEAT_SECONDS = 3.0
"""A heartbeat's answer tells a worker of a rebalance, and a rebalance waits for all workers. So a long session must not slow it."""
_REBALANCE_SECONDS = 15.0
_ELSEWHERE_ENDS_SECONDS = 3.0
_FOREVER_SECONDS = 10 * 365 * 86_400.0


class _AsIs(codecs.Codec):
    """Hands batches through, which are no bytes."""

    def loads(self, s: Any) -> Any:
        return s


codecs.register(_CODEC, _AsIs())


def build_app(pipeline: Pipeline[Any]) -> tuple[faust.App, Supervisor]:
    """The Faust application of a pipeline and the supervisor of its tasks.

    Raises ConfigurationError, also where a noise secret is needed and there is none.
    """
    settings, stages = pipeline.settings, pipeline.stages
    set_cache_bytes(settings.worker.cache_bytes)
    services = replace(pipeline.services(), publisher=pipeline.publisher())
    session_seconds = settings.worker.session_timeout / 1000
    heartbeat_seconds = min(session_seconds / _HEARTBEATS_PER_SESSION, _LONGEST_HEARTBEAT_SECONDS)
    app = faust.App(
        settings.application,
        **for_faust(settings.kafka),
        datadir=str(settings.worker.data_directory / "faust"),
        topic_partitions=1,
        topic_disable_leader=True,
        topic_allow_declare=False,
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=settings.worker.fetch_bytes,
        consumer_metadata_max_age_ms=30_000,
        broker_session_timeout=session_seconds,
        broker_heartbeat_interval=heartbeat_seconds,
        broker_rebalance_timeout=_REBALANCE_SECONDS,
        # aiokafka leaves the group, and comes back only when asked for records, if it is not asked for so long: when all tasks
        # of a worker recover, wait or refuse. The watchdog ends a worker that hangs.
        broker_max_poll_interval=_FOREVER_SECONDS,
        stream_wait_empty=False,
        web_enabled=False,
        loghandlers=[],
    )
    supervisor = Supervisor(app, services, stages, heartbeat_seconds=heartbeat_seconds)
    group = supervisor.group
    elsewhere = None if settings.input.kafka is None else _elsewhere(settings, settings.input.kafka, group)
    group.elsewhere = elsewhere
    app.transport = BatchTransport(
        app.conf.broker_consumer,
        app,
        client_options=for_aiokafka(settings.kafka),
        is_raw=lambda topic: supervisor.stage_of(topic) is stages[0],
        # What stands for sources is empty: their records come from elsewhere.
        wanted_at=lambda tp: (
            math.inf if elsewhere is not None and tp.topic == elsewhere.topic else group.wanted_at(InputPartition(*tp))
        ),
        on_trouble=lambda tp, reason: group.on_trouble(InputPartition(*tp), reason),
        instance=settings.worker.instance,
        on_fenced=supervisor.on_fenced,
        leaves=supervisor.gives_up_its_place,
    )

    @app.on_partitions_assigned.connect
    async def assigned(app: Any, assigned: set[TP], **_: Any) -> None:
        if elsewhere is not None and not elsewhere.ident:
            elsewhere.start()
        supervisor.on_assigned(InputPartition(*tp) for tp in assigned)

    @app.on_partitions_revoked.connect
    async def revoked(app: Any, revoked: set[TP], **_: Any) -> None:
        group.revoke()

    @app.on_before_shutdown.connect
    async def shutting_down(app: Any, **_: Any) -> None:
        await supervisor.stop()
        if elsewhere is not None and elsewhere.is_alive():
            elsewhere.end()
            await asyncio.get_running_loop().run_in_executor(None, elsewhere.join, _ELSEWHERE_ENDS_SECONDS)

    return app, supervisor


def _elsewhere(settings: Settings, kafka: ClusterSettings, group: Group) -> Elsewhere:
    """The consumer of the other cluster, which begins with the first assignment."""
    return Elsewhere(
        group,
        topic=settings.topic(SOURCES.name),
        options=for_aiokafka(kafka),
        servers=kafka.bootstrap_servers,
        fetch_bytes=settings.worker.fetch_bytes,
    )


class _Worker(faust.Worker):
    """Faust's, without its debugging signals: they print all local variables, records and the secret among them."""

    def install_signal_handlers(self) -> None:
        super().install_signal_handlers()
        ENDING.listen()

    def _on_sigusr1(self) -> None:
        logs.where_threads_are()

    def _on_sigusr2(self) -> None:
        log.info("SIGUSR2 has no meaning here")


def _attach(app: faust.App, supervisor: Supervisor) -> None:
    """Attach the agents. The raw topics are known by now; of those that are added later the route's agent gets the records, too."""
    for agent in agents_of(supervisor.stages, supervisor.topics_of, supervisor.group.offer):
        topic = app.topic(*agent.topics, value_serializer=_CODEC, key_serializer=_CODEC, acks=False)
        app.agent(topic, name=agent.name)(agent.consume)

    async def resubscribe(topics: Sequence[str]) -> None:
        # Faust's own way waits for 45 seconds, and needs an agent more for each topic.
        for channel in app.topics:
            if set(channel.topics) & set(topics):
                channel.topics = list(topics)
        await app.consumer.subscribe(await app.topics._update_indices())

    def subscribe(topics: Sequence[str]) -> None:
        if (loop := supervisor.group.loop) is not None:
            asyncio.run_coroutine_threadsafe(resubscribe(topics), loop)

    supervisor.subscribe = subscribe


def run(app: faust.App, supervisor: Supervisor, level: str) -> None:
    """Join the group, and serve until SIGTERM or SIGINT; ends with SystemExit. level: of the log, in capitals.

    The supervisor must have been admitted.
    """
    _attach(app, supervisor)
    worker = _Worker(
        app,
        loglevel=level,
        override_logging=False,
        redirect_stdouts=False,
        console_port=0,
        blocking_timeout=0.0,
        quiet=True,
    )
    worker.spinner = None  # it would write to the terminal's cursor
    # Batches make millions of short-lived containers and no cycles; the collector would walk through all of them.
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)
    log.info("worker %s starts (pid %d)", supervisor.worker, os.getpid())
    crash_points.reach(("worker",), "before-group")
    try:
        worker.execute_from_commandline()
    except SystemExit as end:
        code = ENDING.exit_code or end.code
        if supervisor.left_behind or abandoned():
            ENDING.cut(code)
        raise SystemExit(code) from None
    finally:
        # The interpreter's end takes apart only what the collector sees; DuckDB's library prints a page about what is left.
        gc.unfreeze()
