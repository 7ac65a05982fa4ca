"""Static membership: a worker with a name (``worker.instance``) gets its partitions back after a restart, and no other moves.

Kafka knows a static member by its instance (KIP-345). aiokafka joins with an instance and does not leave with one. Four things
are missing there, and are here:

- Its heartbeats do not carry the instance. So the broker cannot say that another worker has joined with the same one: the first
  would join again, and both would take the partitions from each other for ever.
- It does not know the broker's error for that (FENCED_INSTANCE_ID).
- A leader that comes back gets its old assignment and is not told that it leads. Nobody would watch for new partitions then. The
  assignment therefore carries the numbers of partitions that it was made of, and a leader that comes back goes on from there.
- A worker that gives its partitions up on purpose must leave, with an instance as well.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec
from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import GroupCoordinatorNotAvailableError
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.group import HeartbeatRequest, HeartbeatRequest_v1
from aiokafka.protocol.types import Int16, Int32, Schema, String

from susurrus.agents.runtime.faust.assignor import Counts

log = logging.getLogger(__name__)

FENCED_INSTANCE_ID: Final = 82
"""Error code of the Kafka protocol: another member has joined with the same instance."""
_UUID_LENGTH: Final = 36


class _InstanceHeartbeatResponse(Response):
    API_KEY = HeartbeatRequest.API_KEY
    API_VERSION = 3
    SCHEMA = Schema(("throttle_time_ms", Int32), ("error_code", Int16))


class _InstanceHeartbeatStruct(RequestStruct):
    API_KEY = HeartbeatRequest.API_KEY
    API_VERSION = 3
    RESPONSE_TYPE = _InstanceHeartbeatResponse
    SCHEMA = Schema(
        *zip(HeartbeatRequest_v1.SCHEMA.names, HeartbeatRequest_v1.SCHEMA.fields, strict=True),
        ("group_instance_id", String("utf-8")),
    )


class InstanceHeartbeat(Request[_InstanceHeartbeatStruct]):
    """A heartbeat that carries the instance; brokers know it since Kafka 2.3."""

    API_KEY = HeartbeatRequest.API_KEY

    def __init__(self, group: str, generation: int, member: str, instance: str | None) -> None:
        self._values = (group, generation, member, instance)

    def build(self, request_struct_class: type[_InstanceHeartbeatStruct]) -> _InstanceHeartbeatStruct:
        """The request as it is sent."""
        return request_struct_class(*self._values)


class StaticCoordinator(GroupCoordinator):
    """A member of the group by its instance.

    on_fenced: called once, when another worker has joined with the same instance. leaves: whether to leave the group when it
    is closed, because this worker is not expected back.
    """

    _group_instance_id: str | None
    _group_subscription: set[str] | None

    def __init__(self, *args: Any, on_fenced: Callable[[], None], leaves: Callable[[], bool], **options: Any) -> None:
        self._on_fenced = on_fenced
        self._leaves = leaves
        self._is_fenced = False
        self._leads = False
        super().__init__(*args, **options)

    async def _send_req(self, request: Any) -> Any:
        """Every request to the coordinator of the group goes through here."""
        if isinstance(request, HeartbeatRequest):
            request = InstanceHeartbeat(self.group_id, self.generation, self.member_id, self._group_instance_id)
        response = await super()._send_req(request)
        if getattr(response, "error_code", 0) == FENCED_INSTANCE_ID:
            if not self._is_fenced:
                self._is_fenced = True
                self._on_fenced()
            # Joining again would fence the other worker in turn, so nothing more is sent until this one ends.
            await asyncio.wait([self._closing])
            raise GroupCoordinatorNotAvailableError
        if (leader := getattr(response, "leader_id", None)) is not None:
            self._leads = self._was_here(leader)
        return response

    def _was_here(self, member: str) -> bool:
        """Whether a member is this instance, now or before a restart: brokers name a static member instance-uuid."""
        instance = f"{self._group_instance_id}-"
        return member.startswith(instance) and len(member) == len(instance) + _UUID_LENGTH

    async def _on_join_complete(self, generation: int, member_id: str, protocol: str, given: bytes) -> None:
        await super()._on_join_complete(generation, member_id, protocol, given)
        if self._leads and self._group_subscription is None:
            self._watch_partitions(ConsumerProtocolMemberAssignment.decode(given).user_data)

    def _watch_partitions(self, counts: bytes) -> None:
        """Go on watching the topics as before the restart. The group assigns anew if they have grown meanwhile."""
        self._group_subscription = set(self._subscription.subscription.topics)
        self._metadata_snapshot = msgspec.json.decode(counts, type=Counts)
        self._handle_metadata_update(self._cluster)

    async def _maybe_leave_group(self) -> None:
        if self._leaves():
            self._group_instance_id = None  # aiokafka does not leave with one
        await super()._maybe_leave_group()


class StaticConsumer(AIOKafkaConsumer):
    """aiokafka's consumer with this coordinator; ``on_fenced`` and ``leaves`` as there."""

    _coordinator: Any

    def __init__(self, *topics: str, on_fenced: Callable[[], None], leaves: Callable[[], bool], **options: Any) -> None:
        super().__init__(*topics, **options)
        self._on_fenced = on_fenced
        self._leaves = leaves

    async def start(self) -> None:
        """Connect. Faust subscribes later, so the coordinator that this replaces has joined nothing yet."""
        await super().start()
        log.info(
            "member of group %s as worker.instance=%s: when it ends, its partitions wait %.0f s for it",
            self._group_id,
            self._group_instance_id,
            self._session_timeout_ms / 1000,
        )
        await self._coordinator.close()
        self._coordinator = StaticCoordinator(
            self._client,
            self._subscription,
            group_id=self._group_id,
            group_instance_id=self._group_instance_id,
            heartbeat_interval_ms=self._heartbeat_interval_ms,
            session_timeout_ms=self._session_timeout_ms,
            retry_backoff_ms=self._retry_backoff_ms,
            enable_auto_commit=self._enable_auto_commit,
            assignors=self._partition_assignment_strategy,
            exclude_internal_topics=self._exclude_internal_topics,
            max_poll_interval_ms=self._max_poll_interval_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            on_fenced=self._on_fenced,
            leaves=self._leaves,
        )
