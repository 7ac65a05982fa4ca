"""Apicurio's own interface (`…/apis/registry/v2`, `/v3`), for the ids that Confluent's interface does not know: global and content
ids are other numbers than the ids of Confluent's interface, and a number of one kind may be another schema's of the other kind.

It is asked through the HTTP client that confluent-kafka made, so credentials, certificates and proxies are the same settings. That
client is a private part of confluent-kafka's: tests/agents/runtime/test_private_parts.py says at once when a version has moved it.
"""

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from susurrus.agents.formats.framing import CONTENT_ID, GLOBAL_ID
from susurrus.agents.formats.registry import NOT_FOUND

_PLACES: Final = {GLOBAL_ID: "globalIds", CONTENT_ID: "contentIds"}
_UNKNOWN: Final = ("ArtifactNotFoundException", "ContentNotFoundException", "VersionNotFoundException")
"""What Apicurio calls the error that it has no such id; a wrong path has another name."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What a schema refers to, as confluent-kafka's client has it. subject: the path of the artifact."""

    name: str
    subject: str
    version: str


@dataclass(frozen=True, slots=True)
class ApicurioSchema:
    """A schema as confluent-kafka's client has it. schema_type: unknown, because Apicurio's answer does not always say it."""

    schema_str: str
    references: tuple[Reference, ...]
    schema_type: None = None


class ApicurioInterface:
    """Asks for schemas by Apicurio's ids. client: confluent-kafka's. error: its type of errors, which this raises, too."""

    def __init__(self, client: Any, error: type[Exception]) -> None:
        self._client, self._error = client, error

    def get(self, kind: str, number: int) -> ApicurioSchema:
        """The schema. Raises the client's error, what the HTTP client raises, and TypeError, ValueError and KeyError where an
        answer is no schema, or has no references.
        """
        place = f"ids/{_PLACES[kind]}/{number}"
        return self._schema(place, place)

    def get_version(self, subject: str, version: str) -> ApicurioSchema:
        """What a schema refers to. Raises as `get` does."""
        place = f"{subject}/versions/{quote(version, safe='')}"
        return self._schema(f"{place}/content" if self._is_third else place, place)

    def _schema(self, content: str, place: str) -> ApicurioSchema:
        found = self._asked(content, {}).content.decode()
        references = tuple(
            Reference(str(one["name"]), _artifact(one.get("groupId"), one["artifactId"]), str(one["version"]))
            for one in self._asked(f"{place}/references", {}).json()
        )
        return ApicurioSchema(found, references)

    @property
    def _is_third(self) -> bool:
        return any(base.endswith("/v3") for base in self._client._rest_client.base_urls)

    def serves(self) -> bool:
        """Whether it shows artifacts to these credentials. Raises as `get` does."""
        found = self._asked("search/artifacts", {"limit": "1"}).json()
        return isinstance(found, dict) and bool(found.get("count"))

    def _asked(self, path: str, query: dict[str, str]) -> Any:
        rest = self._client._rest_client
        headers = {"Accept": "*/*"}
        if rest.bearer_auth_credentials_source:
            rest.handle_bearer_auth(headers)
        *others, last = rest.base_urls
        for base in others:
            try:
                response = rest.send_http_request(base, path, "GET", headers, None, query)
            except Exception:  # of many types (schemas.py); the next address may answer
                continue
            if response.status_code < 500:
                break
        else:
            response = rest.send_http_request(last, path, "GET", headers, None, query)
        if response.status_code >= 300:
            raise self._error(response.status_code, _code(response), "Apicurio")
        return response


def _artifact(group: str | None, name: str) -> str:
    return f"groups/{quote(group or 'default', safe='')}/artifacts/{quote(name, safe='')}"


def _code(response: Any) -> int:
    """An error's code in terms of Confluent's: of an unknown schema, or none of these."""
    try:
        return NOT_FOUND[-1] if response.json()["name"] in _UNKNOWN else -1
    except (ValueError, KeyError, TypeError):
        return -1
