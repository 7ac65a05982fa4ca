"""Quix Streams: a count in RocksDB with a changelog, keyed as the raw topic is (no re-keying). At least once."""

import json
import os
import sys
import tempfile
import time
import uuid

from quixstreams import Application, State

BOOTSTRAP_SERVERS, TOPIC, RECORDS = sys.argv[1], sys.argv[2], int(sys.argv[3])

seen, started = 0, 0.0


def count(record: dict[str, object], state: State) -> int:
    """One more record of this message key; reports and leaves when the share of this peer is done."""
    global seen, started
    started = started or time.perf_counter()
    total = state.get("count", 0) + 1
    state.set("count", total)
    seen += 1
    if seen == RECORDS // 5:
        print(json.dumps({"mark": seen, "seconds": time.perf_counter() - started}), flush=True)
    if seen == RECORDS:
        print(json.dumps({"records": seen, "seconds": time.perf_counter() - started}), flush=True)
        sys.stdin.read()  # until what this process used is noted
        os._exit(0)  # the orderly shutdown is not what is measured
    return total


app = Application(
    broker_address=BOOTSTRAP_SERVERS,
    consumer_group=f"quix-count-{uuid.uuid4().hex[:8]}",
    auto_offset_reset="earliest",
    state_dir=tempfile.mkdtemp(prefix="quix-count-"),
    loglevel="WARNING",
)
app.dataframe(app.topic(TOPIC, value_deserializer="json")).apply(count, stateful=True)
app.run()
