"""Record batches that a real broker takes and careful clients never write: each of their records counts, and nothing waits."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.produce import ProduceRequest

from susurrus.topics.private_stream import decode_row
from tests.agents.stream.test_stage import expected
from tests.broker import Broker, wait_for
from tests.pipeline import archive_topic
from tests.record_batches import odd_batches, record_batch
from tests.stream_pipeline import TOPS, stream_pipeline

STAMP = 1_700_000_000_000


def reading(watts: float) -> bytes:
    return json.dumps({"meter": "a", "reading": {"watts": watts}}).encode()


async def produce(servers: str, topic: str, batches: list[bytes]) -> list[int]:
    """Send record batches as they are. The broker's error codes: 0 where it has taken one."""
    client = AIOKafkaClient(bootstrap_servers=servers)
    await client.bootstrap()
    try:
        await client.set_topics([topic])
        [node] = [broker.nodeId for broker in client.cluster.brokers()]
        assert await client.ready(node)
        answers = []
        for batch in batches:
            request = ProduceRequest(None, -1, 30_000, [(topic, [(0, batch)])])
            answers.append((await client.send(node, request)).topics[0][1][0][1])
        return answers
    finally:
        await client.close()


@pytest.mark.parametrize("programs", ["0", "1"])
def test_every_record_of_an_odd_batch_counts_and_so_do_those_behind_it(
    kafka: Broker, tmp_path: Path, programs: str
) -> None:
    watts = np.random.default_rng(1).integers(10, 99, 600).astype(float)
    texts = [reading(value) for value in watts.tolist()]
    topic, batches, at = archive_topic(kafka, 1), list[bytes](), 0
    for name in odd_batches(0):
        odd, _ = odd_batches(STAMP, texts[at : at + 3])[name]
        batches += [odd, record_batch(texts[at + 3 : at + 10], stamp=STAMP)]
        at += 10
    batches.append(record_batch(texts[at:], stamp=STAMP))
    assert set(asyncio.run(produce(kafka.bootstrap_servers, topic, batches))) == {0}, "brokers have become stricter"
    with stream_pipeline(kafka, tmp_path, topic, TOPS) as pipeline:
        pipeline.start(SUSURRUS_COMPILED=programs)
        _, released = expected(pipeline, 0, "a", watts)
        public, wanted = pipeline.settings.topic("private-stream"), (released.value * 0.5).tolist()
        wait_for(lambda: len(kafka.read_all(public)) >= len(wanted), "the rows of all records")
        found = [decode_row(message.value()) for message in kafka.read_all(public)]
        assert [row.value.estimate for row in found] == wanted
        assert not kafka.read_all(pipeline.settings.topic("dead-letter"))
