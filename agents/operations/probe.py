"""Checks what a worker needs of Kafka before it joins the group: the brokers, the credentials, the topics, the rights.

One sentence names the missing setting or right and what to do. Otherwise every client and every task would report it in its own
way. The worker waits, with a log line, for what can still appear: Kubernetes starts workers before names, brokers and topics
exist. What an operator must fix ends the worker with exit code 2. ``susurrus status`` shows the same sentence.

Rights come from the brokers' metadata, which lists the operations that this principal may do. The probe writes nothing except one
entry of the transaction coordinator, under an id that no task has. Where brokers list no operations, as the embedded one, no right
counts as missing.
"""

import logging
import re
import shlex
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, OffsetSpec

from susurrus.agents.config.kafka_properties import librdkafka
from susurrus.agents.config.settings import Settings
from susurrus.agents.kafka.access import Right, needed_on_topics, right_on
from susurrus.agents.kafka.requests import group_of, is_fenced
from susurrus.agents.logs import SILENT
from susurrus.agents.runtime.lacks import NO_ANSWER, describe_topics
from susurrus.agents.runtime.pipeline import Pipeline
from susurrus.mechanisms.errors import ConfigurationError

log = logging.getLogger(__name__)

REACH_SECONDS: Final = 3.0
"""How long brokers may take to answer before the worker reports it."""
_ANSWER_SECONDS: Final = 10.0
_SURE_SECONDS: Final = 0.5
"""How long other bootstrap servers may still answer after one has reported what an operator must fix."""
_LATER_SECONDS: Final = 1.5
"""The same, after one has reported what may pass by itself."""
_PAUSE_SECONDS: Final = (0.5, 1.0, 2.0, 5.0)
_SAY_AGAIN_SECONDS: Final = (10.0, 30.0, 60.0, 300.0)

_CREATE: Final = "run `susurrus topics create --config ...`"
_PLACE: Final = re.compile(r"(?:\w+://)?(?P<address>[^/\s]+)/(?P<node>\w+): (?P<text>.*?)(?: \(after .*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a worker cannot start. waits: the cause may go away by itself."""

    text: str
    waits: bool


@dataclass(frozen=True, slots=True)
class Fit:
    """A cluster on which the worker can start. partitions: of all stages together, the most tasks one worker may get."""

    brokers: int
    partitions: int


def wait_until_fit(pipeline: Pipeline[Any], show: Callable[[str], None]) -> Fit:
    """Return what was found when a worker can start. ``show`` gets what the worker waits for, and the empty text at the end.

    Raises ConfigurationError for what does not pass by itself. A signal's exception ends the wait at once.
    """
    said, say_at, pauses = "", 0.0, _lasting(_PAUSE_SECONDS)
    while isinstance(trouble := _in_thread(lambda: look(pipeline)), Trouble):
        if not trouble.waits:
            raise ConfigurationError(trouble.text)
        show(trouble.text)
        if trouble.text != said:
            said, say_at, silences = trouble.text, 0.0, _lasting(_SAY_AGAIN_SECONDS)
        if (now := time.monotonic()) >= say_at:
            log.warning("not started yet: %s", said)
            say_at = now + next(silences)
        time.sleep(next(pauses))
    if said:
        log.info("nothing is missing any more")
    show("")
    return trouble


def _lasting(seconds: tuple[float, ...]) -> Iterator[float]:
    """These, and then the last one again and again."""
    return chain(seconds, repeat(seconds[-1]))


def _in_thread(work: Callable[[], Trouble | Fit]) -> Trouble | Fit:
    """Do it in another thread: a client waits in C, which no signal interrupts. The main thread waits where a signal does."""
    done: Future[Trouble | Fit] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="probe", daemon=True).start()
    return done.result()


def look(pipeline: Pipeline[Any]) -> Trouble | Fit:
    """Why a worker of this pipeline cannot start now, if so. Takes well under two seconds on a healthy cluster."""
    settings = pipeline.settings
    if settings.kafka.embedded:
        return Fit(brokers=1, partitions=0)  # in this process; it creates a topic when it is first named
    errors: list[KafkaError] = []
    try:
        admin = _admin(settings, errors)
        brokers = _reach(settings, admin, errors)
        if isinstance(brokers, Trouble):
            return brokers
        partitions = _topics(pipeline, admin)
        if isinstance(partitions, Trouble):
            return partitions if partitions.waits else _refusal(partitions.text, *_rights(settings, admin))
        lines = _rights(settings, admin)
        return _refusal(*lines) if lines else Fit(brokers, partitions)
    except ConfigurationError as error:
        return _refusal(str(error))
    except KafkaException as error:
        return _unanswered(settings, error.args[0], errors)


def reach(settings: Settings) -> None:
    """Raise ConfigurationError, in a few seconds, where no broker can be reached with these settings."""
    errors: list[KafkaError] = []
    if isinstance(trouble := _reach(settings, _admin(settings, errors), errors), Trouble):
        raise ConfigurationError(trouble.text)


def _admin(settings: Settings, errors: list[KafkaError]) -> AdminClient:
    try:
        return AdminClient({**librdkafka(settings.kafka), "error_cb": errors.append}, logger=SILENT)
    except KafkaException as error:
        text = str(error.args[0].str()).removeprefix("Failed to create admin client: ")
        raise ConfigurationError(f"kafka.properties: {text}; correct it") from None


# ---- the brokers -----------------------------------------------------------------------------------------------------


def _reach(settings: Settings, admin: AdminClient, errors: list[KafkaError]) -> Trouble | int:
    """How many brokers there are, or why none can be reached. The embedded one is inside this process."""
    if settings.kafka.embedded:
        return 1
    began, sure_at = time.monotonic(), float("inf")
    answer = admin.describe_cluster(request_timeout=REACH_SECONDS)
    while not answer.done() and time.monotonic() < min(began + REACH_SECONDS, sure_at):
        admin.poll(0.05)
        for trouble in _said(settings, errors):
            sure_at = min(sure_at, time.monotonic() + (_LATER_SECONDS if trouble.waits else _SURE_SECONDS))
    if answer.done() and answer.exception() is None:
        return len(answer.result().nodes)
    admin.poll(0)
    said = sorted(_said(settings, errors), key=lambda trouble: trouble.waits)
    return said[0] if said else _connected(settings)


def _said(settings: Settings, errors: list[KafkaError]) -> Iterator[Trouble]:
    """What each of the client's errors means."""
    for error in list(errors):
        if error.code() == KafkaError._ALL_BROKERS_DOWN or (place := _PLACE.fullmatch(error.str())) is None:
            continue
        where = place["address"]
        if place["node"] != "bootstrap":
            where += f" (what broker {place['node']} advertises)"
        yield _meaning(settings, error, where, place["text"])


def _meaning(settings: Settings, error: KafkaError, where: str, text: str) -> Trouble:
    servers, security = _named(settings)
    code, reason = error.code(), text.rpartition(": ")[2].strip()
    if "certificate verify failed" in text:
        return _refusal(
            f'kafka.properties."ssl.ca.location": does not vouch for the certificate of {where}, or that is for another host '
            "name; give the authority that signed it, and use the name that it was made for in kafka.bootstrap_servers"
        )
    if "PLAINTEXT broker listener" in text or ("closed by peer" in text and "SSL" in text):
        return _wait(
            f"{security}: {where} does not speak TLS; use a protocol without SSL, or the port of a TLS listener"
        )
    if code == KafkaError._SSL:
        return _refusal(f'kafka.properties."ssl.*": TLS with {where} fails ({reason}); correct them')
    if code == KafkaError._AUTHENTICATION:
        return _authentication(settings, security, where, text)
    if code == KafkaError._RESOLVE:
        return _wait(f"{servers}: the name in {where} cannot be resolved ({reason}); correct it, or see to DNS")
    if "refused" in text:
        return _wait(f"{servers}: nothing listens at {where} ({reason}); start the brokers, or correct it")
    if code == KafkaError._BAD_MSG or "response size" in text:
        return _wait(f"{servers}: what answers at {where} is no Kafka broker; correct the address or the port")
    return _wait(f"{servers}: {where} cannot be reached ({reason}); see to the network and the brokers, or correct it")


def _authentication(settings: Settings, security: str, where: str, text: str) -> Trouble:
    properties = settings.kafka.properties
    if "Unsupported SASL mechanism" in text:
        name = "sasl.mechanism" if "sasl.mechanism" in properties else "sasl.mechanisms"
        offered = text.rpartition("supported mechanisms: ")[2].strip() or "none"
        return _refusal(
            f'kafka.properties."{name}" = "{properties.get(name, "GSSAPI")}": {where} does not offer it, but {offered}; '
            "use one of these, or enable it on the brokers"
        )
    if "not valid in current SASL state" in text:
        return _refusal(
            f"{security}: {where} takes no user and no password; use a protocol without SASL, or the port of a listener with it"
        )
    if any(word in text for word in ("ransport failure", "imed out", "isconnected")):
        return _wait(f"{security}: {where} goes away while the user is checked; see to the brokers")
    reason = text.removeprefix("SASL authentication error: ").removeprefix("Authentication failed: ").strip()
    return _refusal(
        f'kafka.properties."sasl.username" and "sasl.password": {where} refuses them ({reason}); correct them, or create '
        "the user on the brokers"
    )


def _named(settings: Settings) -> tuple[str, str]:
    """The settings of the addresses and of the protocol, with their values."""
    protocol = settings.kafka.properties.get("security.protocol", "PLAINTEXT")
    servers = f'kafka.bootstrap_servers="{settings.kafka.bootstrap_servers}"'
    return servers, f'kafka.properties."security.protocol" = "{protocol}"'


def _connected(settings: Settings) -> Trouble:
    """Why there is no answer, where the client reports no error: connects to see whether anything listens, and speaks TLS."""
    servers, security = _named(settings)
    protocol = str(settings.kafka.properties.get("security.protocol", "PLAINTEXT")).upper()
    for server in settings.kafka.bootstrap_servers.split(","):
        host, _, port = server.strip().rpartition("://")[2].rpartition(":")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS) as connection:
                if protocol.endswith("SSL"):
                    return _wait(f"{servers}: {server} is connected, but does not answer; see to the brokers")
                with context.wrap_socket(connection, server_hostname=host):
                    return _wait(
                        f"{security}: {server} speaks TLS; use SSL or SASL_SSL, or the port of a listener without TLS"
                    )
        except TimeoutError:
            return _wait(
                f"{servers}: {server} does not answer within {REACH_SECONDS:.0f} s; see to the network, or correct it"
            )
        except ssl.SSLError:
            other = "SASL_PLAINTEXT" if protocol == "PLAINTEXT" else "another one"
            return _wait(
                f"{security}: {server} closes the connection; use the protocol of this listener ({other}?), or another port"
            )
        except (OSError, ValueError):
            continue
    return _wait(f"{servers}: no broker answers within {REACH_SECONDS:.0f} s; see to the brokers, or correct it")


def _unanswered(settings: Settings, error: KafkaError, errors: list[KafkaError]) -> Trouble:
    """Why a request had no answer although a broker was reached: it may have gone to a broker that advertises a wrong address."""
    said = [trouble for trouble in _said(settings, errors) if "advertises" in trouble.text]
    if said and error.code() in NO_ANSWER:
        return said[0]
    return _wait(f"Kafka is not ready yet ({error.name()}: {error.str()}); see to the brokers if this stays")


# ---- topics and rights -----------------------------------------------------------------------------------------------


def _topics(pipeline: Pipeline[Any], admin: AdminClient) -> Trouble | int:
    """The number of partitions to run, if every topic exists and gives the rights that a worker needs; otherwise the trouble."""
    settings = pipeline.settings
    raw = settings.input.topic if settings.reads_raw else None
    found, missing, short = describe_topics(admin, needed_on_topics(settings), seconds=_ANSWER_SECONDS)
    if short:
        return _refusal(*_rights_on_topics(settings, short, raw))
    if raw in missing:
        return _wait(
            f'input.topic="{raw}": does not exist on this cluster; create it (it is yours: Susurrus only reads it), or '
            "correct the name"
        )
    if missing and _has_begun(settings, admin, missing):
        log.warning("topics that this pipeline had are gone: %s; their tasks say what to do", ", ".join(missing))
    elif missing:
        some = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        return _wait(f'pipeline.name="{settings.pipeline.name}": its topics do not exist yet ({some}); {_CREATE}')
    return sum(
        len(found[topic].partitions) for topic in (stage.input_topic for stage in pipeline.stages) if topic in found
    )


def _has_begun(settings: Settings, admin: AdminClient, missing: list[str]) -> bool:
    """Whether the pipeline has run before. If so, a missing topic is a loss, and each task refuses it."""
    ledger = settings.topic("ledger")
    if ledger in missing:
        return False
    place = TopicPartition(ledger, 0)
    end = admin.list_offsets({place: OffsetSpec.latest()}, request_timeout=_ANSWER_SECONDS)[place].result()
    return bool(end.offset > 0)


def _rights(settings: Settings, admin: AdminClient) -> list[str]:
    """The missing rights that belong to no topic: those on the group and on transactions."""
    group, right = settings.application, ""
    try:
        found = group_of(admin, group, seconds=_ANSWER_SECONDS, rights=True)
        if found is not None and found.authorized_operations and AclOperation.READ not in found.authorized_operations:
            right = "Read"
    except KafkaException as error:
        if error.args[0].code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
            raise
        right = "Describe"
    lines = _missing(settings, right, f'group="{group}"', right_on(settings, "group", group)) if right else []
    return lines + _transactions(settings, group)


def _transactions(settings: Settings, application: str) -> list[str]:
    """What is missing for transactions. Begins none, and fences only the probe of another worker, which then has its answer."""
    producer = Producer(
        {
            **librdkafka(settings.kafka),
            "transactional.id": f"{application}-probe",
            "transaction.timeout.ms": settings.worker.transaction_timeout,
            "error_cb": lambda error: None,
        },
        logger=SILENT,
    )
    try:
        producer.init_transactions(_ANSWER_SECONDS)
    except KafkaException as error:
        code = error.args[0].code()
        if code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            named = f'transactional-id="{application}-..."'
            return _missing(settings, "Write", named, right_on(settings, "transactional-id", f"{application}-probe"))
        if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            return [
                f"worker.transaction_timeout={settings.worker.transaction_timeout} ms: more than the brokers allow "
                "(transaction.max.timeout.ms); lower it, or raise theirs"
            ]
        if not is_fenced(error.args[0]):
            raise
    return []


def _rights_on_topics(settings: Settings, short: list[tuple[str, str]], raw: str | None) -> Iterator[str]:
    if rights := " and ".join(right for name, right in short if name == raw):
        named = f'input.topic="{raw}" (if there is such a topic)'
        yield from _missing(settings, rights, named, right_on(settings, "topic", str(raw)))
    own: dict[Right, list[tuple[str, str]]] = {}
    for name, right in short:
        if name != raw:
            own.setdefault(right_on(settings, "topic", name), []).append((name, right))
    for gives, lacking in own.items():
        name, right = lacking[0]
        more = f" (and {len(lacking) - 1} more)" if len(lacking) > 1 else ""
        yield from _missing(settings, right, f'topic="{name}"{more}', gives)


def _missing(settings: Settings, right: str, on: str, gives: Right) -> list[str]:
    """What is missing, and the command that gives it, in a line of its own so that it can be copied (agents/cli/console.py)."""
    user = settings.kafka.properties.get("sasl.username")
    principal = shlex.quote(f"User:{user}") if user is not None else '"User:<the worker\'s principal>"'
    return [
        f"the right {right} on {on} is missing; give it:",
        f"    {gives.command(settings.kafka.bootstrap_servers, principal)}",
    ]


def _wait(text: str) -> Trouble:
    return Trouble(text, waits=True)


def _refusal(*lines: str) -> Trouble:
    return Trouble("\n".join(lines), waits=False)
