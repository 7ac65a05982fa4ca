"""Make tests/golden/digests.json: the configuration digest of each strategy, kind, clock and group of columns.

A digest is part of the noise's address and of the ledger: a worker with another one refuses to join a running pipeline.
So a digest that changes without intent is a pipeline that must start anew. Run after a change that is meant:
    python tests/golden/make_digests.py > tests/golden/digests.json
"""

import functools
import json
import sys
from typing import Any

from susurrus.agents.config.settings import Settings
from susurrus.agents.pipelines import pipeline_of, settings_from

INPUT = {"topic": "requests", "user": "host", "key": ["url"]}
PROMISE = {"epsilon": 6.0, "delta": 1e-9, "strategy": "toeplitz"}
COLUMNS = [
    {"name": "visits", "kind": "count"},
    {"name": "people", "kind": "users"},
    {"name": "bytes", "kind": "sum", "field": "bytes", "bound": 1e6},
    {"name": "mean-bytes", "kind": "mean", "field": "bytes", "bound": 1e6},
]


def histogram(**sections: Any) -> Settings:
    """A histogram of page views with some sections changed."""
    data: dict[str, Any] = {"pipeline": {"name": "page-views"}, "input": INPUT, "privacy": PROMISE, **sections}
    return settings_from(data, environ={})


def other(kind: str, section: dict[str, Any], **sections: Any) -> Settings:
    """A pipeline of another kind."""
    data: dict[str, Any] = {"pipeline": {"name": "values", "kind": kind}, kind: section, **sections}
    if kind == "stream":
        data["input"] = {"topic": "values"}
    return settings_from(data, environ={})


@functools.cache
def configurations() -> dict[str, Settings]:
    """Every strategy, kind and clock by name, and what else changes the digest."""
    found = {
        f"strategy {name}": histogram(privacy={**PROMISE, "strategy": name})
        for name in ("toeplitz", "closing", "dp-sqlp")
    }
    ranked = {"gamma": 0.6, "ranked_keys": 4, "prior": [4.0, 2.0, 1.0], "lag": 2}
    for name, parameters in {
        "with parameters": {**ranked, "unknown_share": 0.25, "public_share": 0.2, "keys": 8},
        "without its last look": {**ranked, "unknown_share": 0.0, "public_share": 0.0},
    }.items():
        privacy = {**PROMISE, "strategy": "closing", "closing": parameters}
        found[f"strategy closing {name}"] = histogram(privacy=privacy)
    for clock in ("broker", "producer"):
        found[f"clock {clock}"] = histogram(clock={"kind": clock})
    found["clock replay"] = histogram(
        clock={"kind": "replay", "until": "1995-09-01T00:00:00Z"}, start={"first_window": "1995-08-01T00:00:00Z"}
    )
    found["columns"] = histogram(columns=COLUMNS, bounds={"max_records_per_user": 16, "max_records_per_key": 4})
    found["declared keys"] = histogram(keys={"declared": ["/", "/about"], "discover": False})
    found["declared product"] = histogram(
        input={**INPUT, "key": ["country", "device"]},
        keys={"product": {"country": ["DE", "FR"], "device": ["phone", "desktop"]}},
    )
    found["one total"] = histogram(input={**INPUT, "key": []})
    found["grouping sets"] = histogram(
        input={**INPUT, "key": ["country", "city"], "grouping_sets": [["country"], ["country", "city"], []]},
        levels=[{"key": ["country"], "max_records_per_user": 2}, {"key": [], "share": 0.1}],
    )
    found["counts by value"] = histogram(
        columns=[{"name": "status", "kind": "count_by", "field": "status", "values": ["200", "404"]}]
    )
    found["format avro"] = histogram(input={**INPUT, "format": "avro", "registry": {"url": "http://registry:8081"}})
    found["format protobuf"] = histogram(input={**INPUT, "format": "protobuf", "message": "events:Event"})
    found["filtered and computed"] = histogram(
        input={**INPUT, "where": "status=200", "key": ["url", {"name": "path", "expression": "split_part(url,'?',1)"}]},
        columns=[*COLUMNS, {"name": "kb", "kind": "sum", "expression": "bytes / 1000", "bound": 100.0, "lower": 0.0}],
    )
    for method in ("tops", "tops-paper", "pak"):
        found[f"stream {method}"] = other(
            "stream",
            {"method": method, "bound": 100.0, "epsilon": 1.0, **({"horizon": 1_000_000} if method == "pak" else {})},
        )
    found["local"] = other("local", {"bound": 100.0, "epsilon": 1.0})
    found["local refresh"] = other("local", {"bound": 9.0, "epsilon": 2.0, "refresh": "1h", "phase1_share": 0.1})
    return found


def digests() -> dict[str, str]:
    """What the ledger would say of each configuration, hexadecimal."""
    return {name: pipeline_of(settings).digest().hex() for name, settings in configurations().items()}


if __name__ == "__main__":
    json.dump(digests(), sys.stdout, indent=1)
    print()
