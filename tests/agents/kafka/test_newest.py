"""The last committed record of a partition, behind which the log may hold markers and aborted records only."""

from susurrus.agents.kafka.clients import Clients
from susurrus.agents.kafka.requests import deliver
from tests.broker import Broker


def test_the_newest_record_is_the_last_that_was_committed(kafka: Broker) -> None:
    topic = kafka.create_topic(f"newest-{kafka.new_prefix()}", 2)
    clients = Clients({"bootstrap.servers": kafka.bootstrap_servers}, application=kafka.new_prefix())
    assert clients.newest(topic, 0) is None
    producer = clients.transactional_producer(f"{clients.application}-newest")
    producer.init_transactions(30)

    def transaction(*values: bytes, commit: bool) -> None:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, b"key", partition=0)
        assert deliver(producer, 30) == 0
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)

    for _ in range(2):
        transaction(b"aborted", commit=False)
    assert clients.newest(topic, 0) is None
    transaction(b"first", b"second", commit=True)
    # More offsets than are looked at first.
    transaction(*[b"aborted"] * 300, commit=False)
    found = clients.newest(topic, 0)
    assert found is not None
    assert (found.key, found.value, found.offset) == (b"key", b"second", 5)
    transaction(b"third", commit=True)
    assert (clients.newest(topic, 0) or found).value == b"third"
    assert clients.newest(topic, 1) is None
    producer.discard()
    clients.close()
