"""Wires the pipeline: one Faust application whose agents feed the partition tasks.

    raw ──route──▶ by-user ──bound──▶ bounded ──release──▶ histogram, latest, progress

Faust's part: the application, agents, consumer group and rebalancing, worker process. Ours: batches (transport.py) and
exactly-once partition tasks (task.py).
"""

import gc
import hashlib
import logging
import os
from collections.abc import Callable
from typing import Any

import faust
from faust.serializers import codecs
from faust.types import TP

from susurrus.agents import logs
from susurrus.agents.config.settings import Settings
from susurrus.agents.formats import decoder_of
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.operations.probe import wait_until_fit
from susurrus.agents.operations.web import Pages, WebServer
from susurrus.agents.runtime import crash_points, host
from susurrus.agents.runtime.ending import ENDING
from susurrus.agents.runtime.ledger import Ledger
from susurrus.agents.runtime.services import Services
from susurrus.agents.runtime.store import set_cache_bytes
from susurrus.agents.runtime.supervisor import StageSpec, Supervisor
from susurrus.agents.runtime.transport import BatchTransport
from susurrus.mechanisms.histogram.calendar import Calendar

log = logging.getLogger(__name__)

_CODEC = "susurrus-batch"
_HEARTBEATS_PER_SESSION = 5
_REBALANCE_SECONDS = 15.0
_FOREVER_SECONDS = 10 * 365 * 86_400.0


class _AsIs(codecs.Codec):
    """Batches are no bytes: hand them through."""

    def loads(self, s: Any) -> Any:
        return s


codecs.register(_CODEC, _AsIs())


def application_id(settings: Settings) -> str:
    """Consumer group and transactional.id prefix: prefix and pipeline, so that one prefix ACL covers them."""
    return f"{settings.pipeline.prefix}.{settings.pipeline.name}"


def calendar_of(settings: Settings) -> Calendar:
    """The pipeline's public calendar."""
    window = settings.window
    return Calendar(
        origin=window.origin,
        window=window.length,
        trigger_every=window.trigger_every,
        allowed_lateness=window.allowed_lateness,
    )


def digest_of(settings: Settings) -> bytes:
    """32 bytes that change with whatever changes what is published: the configuration's and, of a histogram, the plan's.

    Raises ConfigurationError where the strategy refuses its numbers.
    """
    digest = settings.config_digest()
    if settings.pipeline.kind != "histogram":
        return digest
    both = digest + settings.plan().digest()
    return hashlib.blake2b(both, digest_size=32, person=b"susurrus-digest").digest()


def build_services(settings: Settings) -> Services:
    """Everything the tasks share. Raises ConfigurationError, also where there is no secret."""
    calendar = calendar_of(settings)
    clients = Clients(
        settings.librdkafka(),
        application=application_id(settings),
        embedded=settings.kafka.embedded,
        transaction_timeout=settings.worker.transaction_timeout,
    )
    digest = digest_of(settings)
    strategy: Any = None
    initializer = ("release", 0)
    if settings.pipeline.kind != "local":  # whose reports have a format of their own
        decoder_of(settings.input, ()).close()  # what it lacks is said now, not by every task
    if settings.pipeline.kind == "histogram":
        from susurrus.mechanisms.histogram.strategy import build_strategy

        strategy = build_strategy(settings.plan())
    else:
        initializer = (stages_of(settings)[0].name, 0)
    # Local reports are random on the device already: the server draws no noise.
    secret = b"" if settings.pipeline.kind == "local" else settings.secret()
    public_progress = None
    if settings.pipeline.kind == "histogram":
        from susurrus.agents.histogram.public_progress import PublicProgress

        public_progress = PublicProgress(clients, settings.topic("progress"), calendar)
    ledger = Ledger(
        settings,
        clients,
        calendar,
        config_digest=digest,
        secret=secret,
        initializer=initializer,
        public_progress=public_progress,
    )
    published_keys = reader = None
    if strategy is not None and strategy.bounding.lag is not None:
        from susurrus.agents.histogram.published_keys import PublishedKeys, PublishedKeysReader

        published_keys = PublishedKeys(
            settings.topic("published-keys"),
            partitions=settings.topics.bounded_partitions,
            calendar=calendar,
            config_digest=digest,
        )
        reader = PublishedKeysReader(clients, published_keys)
    return Services(
        settings=settings,
        clients=clients,
        ledger=ledger,
        calendar=calendar,
        config_digest=digest,
        secret=secret,
        strategy=strategy,
        published_keys=published_keys,
        published_keys_reader=reader,
        public_progress=public_progress,
    )


def stages_of(settings: Settings) -> list[StageSpec]:
    """The stages of a pipeline, in the order of the flow."""
    kind = settings.pipeline.kind
    if kind == "histogram":
        from susurrus.agents.histogram.bound import Bound
        from susurrus.agents.histogram.release import Release
        from susurrus.agents.histogram.route import Route

        return [
            StageSpec("route", settings.input.topic, "route-changelog", Route, purge=False),
            StageSpec("bound", settings.topic("by-user"), "bound-changelog", Bound, purge=True),
            StageSpec("release", settings.topic("bounded"), "release-changelog", Release, purge=True),
        ]
    if kind == "stream":
        from susurrus.agents.stream.pipeline import stream_stages

        return stream_stages(settings)
    from susurrus.agents.local.pipeline import local_stages

    return local_stages(settings)


def build_app(settings: Settings) -> tuple[faust.App, Supervisor]:
    """The Faust application of a pipeline and the supervisor of its tasks."""
    set_cache_bytes(settings.worker.cache_bytes)
    services = build_services(settings)
    stages = stages_of(settings)
    session_seconds = settings.worker.session_timeout / 1000
    heartbeat_seconds = session_seconds / _HEARTBEATS_PER_SESSION
    app = faust.App(
        application_id(settings),
        **settings.faust(),
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
        # aiokafka leaves the group, and comes back only when asked for records, if nobody asks for so long: when all tasks
        # of a worker recover, wait or refuse. A worker that hangs is the watchdog's.
        broker_max_poll_interval=_FOREVER_SECONDS,
        stream_wait_empty=False,
        web_enabled=False,
        loghandlers=[],
    )
    supervisor = Supervisor(app, services, stages, heartbeat_seconds=heartbeat_seconds)
    app.transport = BatchTransport(
        app.conf.broker_consumer,
        app,
        client_options=settings.aiokafka(),
        is_reading=supervisor.is_reading,
        on_trouble=supervisor.on_trouble,
    )
    for stage in stages:
        _add_agent(app, supervisor, stage)

    @app.on_partitions_assigned.connect
    async def assigned(app: Any, assigned: set[TP], **_: Any) -> None:
        await supervisor.on_assigned(assigned)

    @app.on_partitions_revoked.connect
    async def revoked(app: Any, revoked: set[TP], **_: Any) -> None:
        await supervisor.on_revoked(revoked)

    @app.on_before_shutdown.connect
    async def shutting_down(app: Any, **_: Any) -> None:
        await supervisor.stop()

    return app, supervisor


def _add_agent(app: faust.App, supervisor: Supervisor, stage: StageSpec) -> None:
    """An agent only hands batches to the partition's task: one that blocked would starve the others."""
    topic = app.topic(stage.input_topic, value_serializer=_CODEC, key_serializer=_CODEC, acks=False)

    async def agent(stream: Any) -> None:
        async for event in stream.events():
            message = event.message
            supervisor.offer(TP(message.topic, message.partition), event.value)

    app.agent(topic, name=stage.name)(agent)


class _Worker(faust.Worker):
    """Faust's, without its debugging signals: they print all local variables, records and the secret among them."""

    def install_signal_handlers(self) -> None:
        super().install_signal_handlers()
        ENDING.listen()

    def _on_sigusr1(self) -> None:
        logs.where_threads_are()

    def _on_sigusr2(self) -> None:
        log.info("SIGUSR2 has no meaning here")


def run_worker(
    settings: Settings, *, loglevel: str | None = None, ready: Callable[[Supervisor], None] | None = None
) -> None:
    """Run one worker process until SIGTERM or SIGINT; ends with SystemExit, whose code is 0 after an orderly stop
    (agents/runtime/ending.py has the others).

    Must be called from the main thread of its process. ``ready`` is called with the supervisor before the worker
    starts. Waits, in sight, for brokers and topics (agents/operations/probe.py). Raises ConfigurationError for what
    somebody must mend first, and Refusal where the pipeline exists with another configuration or secret.
    """
    level = (loglevel or settings.worker.log_level).upper()
    logs.configure(level)
    stages = len(stages_of(settings))
    host.raise_file_limit(stages, stages=stages, brokers=1)
    with host.data_directory(settings.worker.data_directory):
        app, supervisor = build_app(settings)
    web = _web_server(settings, supervisor)
    try:
        fit = wait_until_fit(settings, supervisor.wait_for)
        host.raise_file_limit(fit.partitions, stages=stages, brokers=fit.brokers)
        supervisor.admit()
        if ready is not None:
            ready(supervisor)
        _run(app, supervisor, level)
    finally:
        if web is not None:
            web.close()


def _run(app: faust.App, supervisor: Supervisor, level: str) -> None:
    """Join the group, and serve until told to stop."""
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
    crash_points.reach("worker", "before-group")
    try:
        worker.execute_from_commandline()
    except SystemExit as end:
        raise SystemExit(ENDING.exit_code or end.code) from None


def _web_server(settings: Settings, supervisor: Supervisor) -> WebServer | None:
    """The worker's pages, where a port is configured."""
    host, port = settings.worker.web_host, settings.worker.web_port
    if not port:
        return None
    calendar = calendar_of(settings) if settings.pipeline.kind == "histogram" else None
    if host not in ("127.0.0.1", "::1", "localhost"):
        log.warning("pages on %s:%d show exact totals: keep them inside, they are not for the public", host, port)
    return WebServer(Pages(supervisor, calendar, pipeline=application_id(settings)), host=host, port=port)
