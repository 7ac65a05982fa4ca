"""A process lives on when its producers are fenced and discarded. librdkafka frees something twice where a fenced producer that
still has records to report is destroyed (agents/kafka/transactional.py)."""

import subprocess
import sys
import threading
from collections import Counter

import pytest
from confluent_kafka import KafkaException, Producer

from susurrus.agents.kafka import profiles
from susurrus.agents.kafka.requests import is_fenced
from susurrus.agents.kafka.transactional import TransactionalProducer
from tests.broker import Broker

TIMES = 40
"""How often the producers of each thread are fenced. Without the flush, the process crashed after 40 to 200 times in all."""
THREADS = 6
_SECONDS = 30.0


@pytest.mark.thorough
@pytest.mark.timeout(1000)
def test_a_process_lives_on_when_its_producers_are_fenced(kafka: Broker) -> None:
    topics = [kafka.create_topic(f"fencing-{number}-{kafka.new_prefix()}", 4) for number in range(4)]
    ran = subprocess.run(
        [sys.executable, "-m", __name__, kafka.bootstrap_servers, *topics],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2_000:]
    assert int(ran.stdout) > TIMES * THREADS / 2  # most were fenced in the middle of a transaction


class _Fencing:
    """Threads that each make the next producer of their transactional id while the one before is at work."""

    def __init__(self, servers: str, topics: list[str]) -> None:
        self._servers, self._topics = servers, topics
        self.seen: Counter[str] = Counter()

    def run(self, number: int) -> None:
        """Let one producer after the other be fenced."""
        current = self._made(number)
        for _ in range(TIMES):
            committed = threading.Event()
            thread = threading.Thread(target=self._work, args=(current, committed))
            thread.start()
            committed.wait(_SECONDS)
            current = self._made(number)
            thread.join()
        current.discard()

    def _made(self, number: int) -> TransactionalProducer:
        own = profiles.transactional_producer(f"fencing-{self._topics[0]}-{number}", timeout=60_000)
        producer = TransactionalProducer(Producer({"bootstrap.servers": self._servers, "log_level": 0, **own}))
        producer.init_transactions(_SECONDS)
        return producer

    def _work(self, producer: TransactionalProducer, committed: threading.Event) -> None:
        batch = [{"value": b"x" * 2_000, "partition": place % 4} for place in range(50)]
        try:
            while True:
                producer.begin_transaction()
                for topic in self._topics:
                    producer.produce_batch(topic, [dict(each) for each in batch])
                producer.commit_transaction(_SECONDS)
                committed.set()
        except KafkaException as error:
            self.seen["fenced" if is_fenced(error.args[0]) else error.args[0].name()] += 1
        finally:
            producer.discard()


if __name__ == "__main__":
    fencing = _Fencing(sys.argv[1], sys.argv[2:])
    threads = [threading.Thread(target=fencing.run, args=(number,)) for number in range(THREADS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    print(fencing.seen["fenced"])
