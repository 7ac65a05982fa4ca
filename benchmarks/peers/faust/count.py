"""A plain Faust agent: records as typed models, a count by key in a RocksDB table with a changelog. At least once."""

import json
import os
import sys
import tempfile
import time
import uuid

import faust

BOOTSTRAP_SERVERS, TOPIC, RECORDS, PARTITIONS = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])


class Record(faust.Record):
    """The raw record."""

    k: str
    u: str
    v: int


app = faust.App(
    f"faust-count-{uuid.uuid4().hex[:8]}",
    broker=f"kafka://{BOOTSTRAP_SERVERS}",
    store="rocksdb://?driver=rocksdict",
    datadir=tempfile.mkdtemp(prefix="faust-count-"),
    topic_partitions=PARTITIONS,
    topic_replication_factor=1,
    consumer_auto_offset_reset="earliest",
    web_enabled=False,
)
raw = app.topic(TOPIC, value_type=Record, partitions=PARTITIONS)
counts = app.Table("counts", default=int, partitions=PARTITIONS)


@app.agent(raw)
async def count(stream: faust.Stream[Record]) -> None:
    """Count by key until the share of this peer is done, then report and leave."""
    seen, started = 0, 0.0
    async for record in stream:
        started = started or time.perf_counter()
        counts[record.k] += 1
        seen += 1
        if seen == RECORDS // 5:
            print(json.dumps({"mark": seen, "seconds": time.perf_counter() - started}), file=sys.__stdout__, flush=True)
        if seen == RECORDS:
            print(
                json.dumps({"records": seen, "seconds": time.perf_counter() - started}), file=sys.__stdout__, flush=True
            )
            sys.stdin.read()  # until what this process used is noted
            os._exit(0)  # the orderly shutdown is not what is measured


faust.Worker(app, loglevel="warn").execute_from_commandline()
