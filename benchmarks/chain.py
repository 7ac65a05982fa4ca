"""What the chain of digests over a stream's values costs, on one core: nanoseconds for each event, by the size of a block.

    python benchmarks/chain.py

A digest is taken after each batch, as a commit does.
"""

import argparse
import statistics
import time

import numpy as np

from susurrus.agents.kafka.offset import Offset
from susurrus.agents.stream import replay

EVENTS, BATCH = 1_000_000, 5_000


def nanoseconds(block: int, streams: int, batch: int) -> float:
    """Of one event: the median of five runs."""
    dice = np.random.default_rng(1)
    names = [f'"meter-{number}"'.encode() for number in range(streams)]
    codes = dice.integers(0, streams, EVENTS).astype(np.int32)
    values = dice.integers(0, 4096, EVENTS)
    replay._BLOCK_BYTES = block * replay._EVENT_BYTES
    found = []
    for _ in range(5):
        chain = replay.Chain(bytes(32), Offset(0))
        began = time.perf_counter()
        for start in range(0, EVENTS, batch):
            chain.add(names, codes[start : start + batch], values[start : start + batch])
            chain.digest()
        found.append((time.perf_counter() - began) / EVENTS * 1e9)
    return statistics.median(found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    for block in (8, 16, 32, 64, 128):
        for streams, batch in ((10, 500), (10, BATCH), (1_000, BATCH)):
            open_bytes = (block - 1) * replay._EVENT_BYTES
            cost = nanoseconds(block, streams, batch)
            print(
                f"block={block:4} open<={open_bytes:5} B streams={streams:5} batch={batch:5}: {cost:6.0f} ns per event"
            )
