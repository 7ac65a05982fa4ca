"""Whether brokers can be reached, and if not, why, in one sentence that names the setting and what to do.

librdkafka reports names, ports, TLS and passwords in many ways, and tries on for ever. Otherwise every client would report it in
its own way.
"""

import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, DescribeClusterResult

from susurrus.agents.config import kafka_tokens
from susurrus.agents.config.kafka_checks import of_section
from susurrus.agents.config.kafka_properties import librdkafka, mechanism_of
from susurrus.agents.config.sections import ClusterSettings
from susurrus.agents.config.settings import Settings
from susurrus.agents.finding import Finding, refuse
from susurrus.agents.kafka import profiles
from susurrus.agents.logs import SILENT
from susurrus.agents.operations import tls
from susurrus.agents.operations.listener import Listener, listener
from susurrus.agents.runtime.lacks import NO_ANSWER
from susurrus.mechanisms.errors import ConfigurationError

REACH_SECONDS: Final = 3.0
"""How long brokers may take to answer before the worker reports it."""
_PATIENT_SECONDS: Final = 20.0
"""How long a command waits for those that listen as they should, and are slow."""
_SURE_SECONDS: Final = 0.5
"""How long other bootstrap servers may still answer after one has reported what an operator must fix."""
_LATER_SECONDS: Final = 1.5
"""The same, after one has reported what may pass by itself."""
_ends: Final = partial(Finding, "brokers", "failure")
_waits: Final = partial(Finding, "brokers", "failure", waits=True)
_PLACE: Final = re.compile(r"(?:\w+://)?(?P<address>[^/\s]+)/(?P<node>\w+): (?P<text>.*?)(?: \(after .*)?", re.DOTALL)


class HasKafka(Protocol):
    """Settings of a pipeline, or whatever else says where brokers are."""

    @property
    def kafka(self) -> ClusterSettings:
        """Addresses and properties."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Brokers without a pipeline, for `reach`."""

    kafka: ClusterSettings


def reach(settings: HasKafka) -> AdminClient:
    """An admin client of brokers that answer, for a command that cannot go on without.

    Raises ConfigurationError where none can be reached: in a few seconds where nothing listens or something is wrong, later where
    brokers listen and are slow.
    """
    errors: list[KafkaError] = []
    admin = admin_of(settings, errors)
    if isinstance(found := reach_brokers(settings, admin, errors, patient=True), Finding):
        refuse([found])
    return admin


def reach_both(settings: Settings) -> tuple[AdminClient, AdminClient]:
    """The same for a command that looks at raw topics, too: clients of the pipeline's cluster and of theirs, which may be one."""
    admin = reach(settings)
    return admin, admin if settings.input.kafka is None else reach(Cluster(settings.input.kafka))


def raw_admin_of(settings: Settings, admin: AdminClient, errors: list[KafkaError]) -> AdminClient | Finding:
    """A client of the cluster with the raw topics, or why a worker could not read there; ``admin`` where that is the pipeline's.

    Raises as `admin_of`.
    """
    if (kafka := settings.input.kafka) is None:
        return admin
    there = Cluster(kafka)
    found = reach_brokers(there, other := admin_of(there, errors), errors)
    refused = found if isinstance(found, Finding) else tls.for_the_raw_consumer(kafka)
    return other if refused is None else of_section(kafka, refused)


def admin_of(settings: HasKafka, errors: list[KafkaError]) -> AdminClient:
    """A client that keeps its errors in ``errors``. Raises ConfigurationError where librdkafka refuses the properties.

    Asking for a topic must not create it, as brokers with auto.create.topics.enable would.
    """
    properties = {**librdkafka(settings.kafka), "allow.auto.create.topics": False, "error_cb": errors.append}
    try:
        return AdminClient(properties, logger=SILENT)
    except KafkaException as error:
        if isinstance(settings, Settings):
            refuse(profiles.refusals(settings))
        text = str(error.args[0].str()).removeprefix("Failed to create admin client: ")
        raise ConfigurationError(f"{settings.kafka.section}.properties: {text}", "correct it") from None


def reach_brokers(
    settings: HasKafka, admin: AdminClient, errors: list[KafkaError], *, patient: bool = False
) -> Finding | int:
    """How many brokers there are, or why none can be reached. The embedded one is inside this process.

    patient: wait longer for brokers that listen as they should, and are slow.
    """
    found = _reach(settings, admin, errors, patient)
    return of_section(settings.kafka, found) if isinstance(found, Finding) else found


def _reach(settings: HasKafka, admin: AdminClient, errors: list[KafkaError], patient: bool) -> Finding | int:
    if settings.kafka.in_process:
        return 1
    began, seconds = time.monotonic(), _PATIENT_SECONDS if patient else REACH_SECONDS
    answer = admin.describe_cluster(request_timeout=seconds)
    found = _answered(settings, admin, errors, answer, began + REACH_SECONDS)
    if found is None:
        found = _wrong(settings)
    if found is None and patient:
        found = _answered(settings, admin, errors, answer, began + seconds)
    return _slow(settings, seconds) if found is None else found


def _answered(
    settings: HasKafka,
    admin: AdminClient,
    errors: list[KafkaError],
    answer: "Future[DescribeClusterResult]",
    until: float,
) -> Finding | int | None:
    """How many brokers there are, or what the client has to say of them; None where neither is known by then."""
    while not answer.done() and time.monotonic() < until:
        admin.poll(0.05)
        for finding in _said(settings, errors):
            until = min(until, time.monotonic() + (_LATER_SECONDS if finding.waits else _SURE_SECONDS))
    if answer.done() and answer.exception() is None:
        return len(answer.result().nodes)
    admin.poll(0)
    return min(_said(settings, errors), key=lambda finding: finding.waits, default=None)


def _said(settings: HasKafka, errors: list[KafkaError]) -> Iterator[Finding]:
    """What each of the client's errors means."""
    for error in list(errors):
        if error.code() == KafkaError._ALL_BROKERS_DOWN or (place := _PLACE.fullmatch(error.str())) is None:
            continue
        where = place["address"]
        if place["node"] != "bootstrap":
            where += f" (what broker {place['node']} advertises)"
        yield _meaning(settings, error, where, place["text"])


def _meaning(settings: HasKafka, error: KafkaError, where: str, text: str) -> Finding:
    servers, security = _named(settings)
    code, reason = error.code(), text.rpartition(": ")[2].strip()
    if (finding := tls.alert(settings.kafka, where, text)) is not None:
        return finding
    if "certificate verify failed" in text:
        return tls.unverified(settings.kafka, where.partition(" ")[0], where)
    if "PLAINTEXT broker listener" in text or ("closed by peer" in text and "SSL" in text):
        return _waits(
            f"{security}: {where} does not speak TLS", "use a protocol without SSL, or the port of a TLS listener"
        )
    if code == KafkaError._SSL:
        return _ends(f'kafka.properties."ssl.*": TLS with {where} fails ({reason})', "correct them")
    if code == KafkaError._AUTHENTICATION:
        return _authentication(settings, security, where, text)
    if code == KafkaError._RESOLVE:
        return _waits(f"{servers}: the name in {where} cannot be resolved ({reason})", "correct it, or see to DNS")
    if "refused" in text:
        return _waits(f"{servers}: nothing listens at {where} ({reason})", "start the brokers, or correct it")
    if code == KafkaError._BAD_MSG or "response size" in text:
        return _waits(f"{servers}: what answers at {where} is no Kafka broker", "correct the address or the port")
    return _waits(
        f"{servers}: {where} cannot be reached ({reason})", "see to the network and the brokers, or correct it"
    )


def _authentication(settings: HasKafka, security: str, where: str, text: str) -> Finding:
    properties = settings.kafka.properties
    tokens = mechanism_of(properties) in kafka_tokens.MECHANISMS
    if "Unsupported SASL mechanism" in text:
        name = "sasl.mechanism" if "sasl.mechanism" in properties else "sasl.mechanisms"
        offered = text.rpartition("supported mechanisms: ")[2].strip() or "none"
        return _ends(
            f'kafka.properties."{name}" = "{properties.get(name, "GSSAPI")}": {where} does not offer it, but {offered}',
            "use one of these, or enable it on the brokers",
        )
    if "not valid in current SASL state" in text:
        return _ends(
            f"{security}: {where} takes no user and no password",
            "use a protocol without SASL, or the port of a listener with it",
        )
    if any(word in text for word in ("ransport failure", "imed out", "isconnected")):
        return _waits(f"{security}: {where} goes away while the user is checked", "see to the brokers")
    reason = text.removeprefix("SASL authentication error: ").removeprefix("Authentication failed: ").strip()
    if tokens:
        # What Kafka's own validator says has no token in it, but another one's might.
        status = "invalid_token" if "invalid_token" in text else "refused"
        return _ends(
            f'kafka.properties."sasl.mechanism" = "{mechanism_of(properties)}": {where} does not take the token '
            f"({status})",
            "see to its scope (sasl.oauthbearer.scope) and extensions, and to the issuer and the audience that the "
            "brokers expect",
        )
    return _ends(
        f'kafka.properties."sasl.username" and "sasl.password": {where} refuses them ({reason})',
        "correct them, or create the user on the brokers",
    )


def _named(settings: HasKafka) -> tuple[str, str]:
    """The settings of the addresses and of the protocol, with their values."""
    protocol = settings.kafka.properties.get("security.protocol", "PLAINTEXT")
    servers = f'kafka.bootstrap_servers="{settings.kafka.bootstrap_servers}"'
    return servers, f'kafka.properties."security.protocol" = "{protocol}"'


def _wrong(settings: HasKafka) -> Finding | None:
    """Why there is no answer, where the client reports no error and something else than slow brokers is the reason."""
    servers, security = _named(settings)
    wanted = str(settings.kafka.properties.get("security.protocol", "PLAINTEXT")).upper()
    for server in settings.kafka.bootstrap_servers.split(","):
        host, _, port = server.strip().rpartition("://")[2].rpartition(":")
        try:
            place = host.strip("[]"), int(port)
            if wanted.endswith("SSL"):  # what is wrong with TLS, the client says
                socket.create_connection(place, timeout=REACH_SECONDS).close()
                return None
            found = listener(*place, REACH_SECONDS)
        except TimeoutError:
            return _waits(
                f"{servers}: {server} does not take a connection within {REACH_SECONDS:.0f} s",
                "see to the network, or correct it",
            )
        except (OSError, ValueError):
            continue
        if found is Listener.TLS:
            return _waits(
                f"{security}: {server} speaks TLS", "use SSL or SASL_SSL, or the port of a listener without TLS"
            )
        if found is Listener.OTHER:
            return _waits(f"{servers}: what answers at {server} is no Kafka broker", "correct the address or the port")
        if found is Listener.SASL and wanted == "PLAINTEXT":
            return _waits(
                f"{security}: {server} wants a user and a password",
                "use SASL_PLAINTEXT, or the port of another listener",
            )
        return None
    return None


def _slow(settings: HasKafka, seconds: float) -> Finding:
    servers, _ = _named(settings)
    return _waits(f"{servers}: no broker answers within {seconds:.0f} s", "see to the brokers, or correct it")


def unanswered(settings: HasKafka, error: KafkaError, errors: list[KafkaError]) -> Finding:
    """Why a request had no answer although a broker was reached: it may have gone to a broker that advertises a wrong address."""
    said = [finding for finding in _said(settings, errors) if "advertises" in finding.text]
    if said and error.code() in NO_ANSWER:
        return said[0]
    return _waits(f"Kafka is not ready yet ({error.name()}: {error.str()})", "see to the brokers if this stays")
