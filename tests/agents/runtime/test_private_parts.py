"""What we use of Faust, Mode, aiokafka and confluent-kafka beyond their public interfaces: here by name, in tested versions only.

``test_transport.py`` and ``tests/chaos`` hold what these parts *mean*; this file says at once, and in words, which one a new
version has moved. Nothing private is used that is not listed.
"""

import ast
import importlib
import inspect
import textwrap
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[3]
DRIVER = "faust.transport.drivers.aiokafka"
FETCHER = "aiokafka.consumer.fetcher"
STATE = "aiokafka.consumer.subscription_state"
COORDINATOR = "aiokafka.consumer.group_coordinator"

# agents/runtime/faust/membership.py overrides, calls or passes on these
OF_THE_COORDINATOR = [
    "_send_req",
    "_on_join_complete",
    "_maybe_leave_group",
    "_handle_metadata_update",
    "_metadata_snapshot",
    "_group_subscription",
    "_group_instance_id",
    "_subscription",
    "_cluster",
    "_closing",
    "group_id",
    "member_id",
    "close",
]
OF_THE_CONSUMER = [
    "_client",
    "_group_id",
    "_group_instance_id",
    "_heartbeat_interval_ms",
    "_session_timeout_ms",
    "_retry_backoff_ms",
    "_enable_auto_commit",
    "_partition_assignment_strategy",
    "_exclude_internal_topics",
    "_max_poll_interval_ms",
    "_rebalance_timeout_ms",
]

REGISTRYS_CLIENT = "confluent_kafka.schema_registry._sync.schema_registry_client"
OF_THE_REGISTRYS_CLIENT = {  # agents/formats/apicurio.py
    f"{REGISTRYS_CLIENT}:SchemaRegistryClient": ["_rest_client"],
    f"{REGISTRYS_CLIENT}:_RestClient": [
        "base_urls",
        "bearer_auth_credentials_source",
        "handle_bearer_auth",
        "send_http_request",
    ],
}

RELIED_ON = {
    # agents/runtime/faust/transport.py and fetching.py override or call these
    f"{DRIVER}:AIOKafkaConsumerThread": ["_create_worker_consumer", "_fetch_records", "_ensure_consumer", "_assignor"],
    "faust.transport.consumer:ConsumerThread": ["call_thread", "consumer", "app"],
    f"{DRIVER}:Consumer": [
        "_new_consumer_thread",
        "_getmany",
        "highwater",
        "verify_event_path",
        "_thread",
        "flow_active",
    ],
    f"{DRIVER}:Transport": ["Consumer"],
    "aiokafka:AIOKafkaConsumer": [
        "_fetcher",
        "_subscription",
        "_coordinator",
        "seek",
        "pause",
        "resume",
        *OF_THE_CONSUMER,
    ],
    f"{COORDINATOR}:GroupCoordinator": ["generation", *OF_THE_COORDINATOR],
    f"{STATE}:SubscriptionState": ["subscription", "reassignment_in_progress", "fetch_context"],
    f"{STATE}:Subscription": ["assignment"],
    f"{STATE}:Assignment": ["active", "tps", "state_value"],
    f"{STATE}:TopicPartitionState": ["position", "has_valid_position", "_position_fut", "lso"],
    f"{FETCHER}:Fetcher": [
        "_closed",
        "_records",
        "_subscriptions",
        "_create_fetch_waiter",
        "fetched_records",
        "_prefetch_backoff",
        "_fetch_max_wait_ms",
        "_in_flight",
        "_notify",
        "_wait_consume_future",
    ],
    f"{FETCHER}:FetchResult": ["_partition_records"],
    f"{FETCHER}:PartitionRecords": ["_records", "_consumer_record", "next_fetch_offset"],
    # the transport puts a subclass in its place, which agents/runtime/faust/record_batches.py has
    f"{FETCHER}:MemoryRecords": ["has_next", "next_batch"],
    "aiokafka.record.memory_records:MemoryRecords": ["has_next", "next_batch"],
    # a record as it was parsed, which a stage gets to see
    "aiokafka.record.default_records:DefaultRecord": [
        "offset",
        "timestamp",
        "timestamp_type",
        "key",
        "value",
        "headers",
    ],
    "aiokafka.protocol.group:HeartbeatRequest": ["API_KEY", "prepare", "build"],
    "aiokafka.protocol.group:HeartbeatRequest_v1": ["SCHEMA"],
    "aiokafka.coordinator.assignors.roundrobin:RoundRobinPartitionAssignor": ["assign", "name", "version"],
    "aiokafka.coordinator.protocol:ConsumerProtocolMemberMetadata": ["version", "subscription", "user_data"],
    "aiokafka.coordinator.protocol:ConsumerProtocolMemberAssignment": ["version", "assignment", "user_data"],
    # agents/runtime/faust/worker.py
    "faust.worker:Worker": ["spinner", "execute_from_commandline"],
    "mode.worker:Worker": ["_on_sigusr1", "_on_sigusr2"],
    "faust.app.base:App": ["transport", "consumer", "consumer_generation_id"],
    "faust.transport.conductor:Conductor": ["_update_indices"],
    **OF_THE_REGISTRYS_CLIENT,
}
CODECS = ["gzip_decode", "snappy_decode", "lz4_decode", "zstd_decode"]
"""Functions of aiokafka.codec that agents/runtime/faust/record_batches.py calls."""
PINNED = ["aiokafka", "faust-streaming", "mode-streaming"]


def attributes(kind: type) -> set[str]:
    """Everything an object of a class has: class attributes, annotations, and what any of its methods assigns to self."""
    found = set(dir(kind))
    for base in inspect.getmro(kind):
        found |= set(inspect.get_annotations(base))
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError):  # compiled: dir() has all of it
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
                found |= {node.attr} if node.value.id == "self" else set()
    return found


def complaint(place: str, names: list[str]) -> str:
    """What is gone from a class, in a sentence; empty if nothing is."""
    module, _, name = place.partition(":")
    ours = "agents/formats/apicurio.py" if place in OF_THE_REGISTRYS_CLIENT else "agents/runtime/"
    advice = f"read what the new version changed, fix {ours}, then move the bound in pyproject.toml"
    try:
        kind = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return f"{module} has no {name}: {advice}"
    missing = sorted(set(names) - attributes(kind))
    return f"{place} has no {', '.join(missing)}: {advice}" if missing else ""


def outside(name: str, installed: str, tested: SpecifierSet) -> str:
    """Why a version is not one that was tested, in a sentence; empty if it is."""
    if tested.contains(installed, prereleases=True):
        return ""
    return f"{name}=={installed} is installed, tested is {tested}: run make install, or test the new one and move the bound"


def declared() -> dict[str, SpecifierSet]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {found.name: found.specifier for found in map(Requirement, project["dependencies"])}


@pytest.mark.parametrize("place", RELIED_ON)
def test_what_we_rely_on_is_there(place: str) -> None:
    assert complaint(place, RELIED_ON[place]) == ""


@pytest.mark.parametrize("name", CODECS)
def test_the_decompressors_are_there(name: str) -> None:
    assert callable(getattr(importlib.import_module("aiokafka.codec"), name, None))


@pytest.mark.parametrize("name", PINNED)
def test_the_installed_version_is_one_that_was_tested(name: str) -> None:
    assert outside(name, version(name), declared()[name]) == ""


@pytest.mark.parametrize("name", PINNED)
def test_the_next_minor_version_is_not_taken_for_tested(name: str) -> None:
    major, minor, *_ = version(name).split(".")
    assert f"{name}=={major}.{int(minor) + 1}.0 is installed" in outside(
        name, f"{major}.{int(minor) + 1}.0", declared()[name]
    )


def test_a_part_that_is_gone_is_named() -> None:
    assert "Fetcher has no _gone, _went" in complaint(f"{FETCHER}:Fetcher", ["_records", "_went", "_gone"])
    assert f"{FETCHER} has no Retriever" in complaint(f"{FETCHER}:Retriever", [])


def private_names(source: str) -> set[str]:
    """Private attributes of anything but ourselves, and private methods of classes that extend another module's."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                found.add(node.attr)
        elif isinstance(node, ast.ClassDef) and any(isinstance(base, ast.Attribute) for base in node.bases):
            methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)}
            found |= {name for name in methods if name.startswith("_") and not name.startswith("__")}
    return found


OURS = {"_fetched", "_put_aside", "_waits"}
"""Private methods that our subclasses add."""


USING = [
    *(f"runtime/faust/{name}.py" for name in ("transport", "fetching", "membership", "worker")),
    "formats/apicurio.py",
]
"""The files below agents/ that rely on private parts."""


@pytest.mark.parametrize("file", USING)
def test_nothing_private_is_used_that_is_not_listed(file: str) -> None:
    used = private_names((ROOT / "agents" / file).read_text()) - OURS
    listed = {name for names in RELIED_ON.values() for name in names}
    assert used <= listed, f"agents/{file} also relies on {sorted(used - listed)}: add them to RELIED_ON"
    assert used, "nothing was found: does the search still work?"


def test_no_other_file_touches_private_parts_of_these_libraries() -> None:
    touching = {"import faust", "from faust", "from aiokafka", "import aiokafka", "from mode", "import mode"}
    listed = {name for names in RELIED_ON.values() for name in names}
    registrys = {name for names in OF_THE_REGISTRYS_CLIENT.values() for name in names}
    for file in sorted((ROOT / "agents").rglob("*.py")):
        if str(file.relative_to(ROOT / "agents")) in USING:
            continue
        source = file.read_text()
        looked_for = listed if any(line in source for line in touching) else registrys
        assert not private_names(source) & looked_for, file
