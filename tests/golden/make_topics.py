"""Maker of topics.json: one record of every format, as hex. Run it only when a format's version is raised.

python tests/golden/make_topics.py
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from susurrus.topics import bounded, by_user, changelog, histogram, progress, published_keys, tick

GOLDEN = Path(__file__).with_name("topics.json")


def records() -> dict[str, bytes]:
    """A record of every format, by name."""
    by_user_block = by_user.ByUserBlock(
        source=3,
        offset=np.array([10, 11, 300]),
        interval=np.array([5, 5, 6]),
        window=np.array([86_400_000] * 3),
        user=np.array([0, 1, 0], np.int32),
        users=[b'"ann"', b"7"],
        key=np.array([0, 0, 1], np.int32),
        keys=[b'"/"', b'["x",null]'],
        values=np.array([[-4, 100_000], [5, 0], [6, -(2**63)]]),
    )
    bounded_block = bounded.BoundedBlock(
        partition=2,
        interval=5,
        window=np.array([0, 86_400_000]),
        keys=[b'"/"', b"true"],
        users=np.array([3, 1]),
        weight=np.array([3 << 20, 1 << 20]),
        sums=np.array([[4, -5], [1, 2**40]]),
    )
    commit = changelog.ChangelogRecord(77, "dGVzdA", b"\x81\xa1g\x07", [(b"k", b"v"), (b"l", b"")], [b"m"])
    chunks = changelog.encode(commit, 80)
    release = histogram.TriggerHeader(
        window_start=0, window_end=86_400_000, trigger=1, of_triggers=2, strategy="toeplitz", epoch="00ff"
    )
    columns = [
        histogram.ColumnRows(name="visits", estimate=np.array([118]), std_error=9.25),
        histogram.ColumnRows(name="mean", estimate=np.array([1 / 3]), std_error=np.array([2.0])),
    ]
    row_keys, row_values = histogram.encode_rows(release, [b'["x",null]'], columns)
    progress_key, progress_value = progress.encode(
        progress.Progress(
            window=0, trigger=1, of_triggers=2, partition=0, of_partitions=8, rows=1, epoch="00ff", epoch_number=2
        )
    )
    published_block = published_keys.block_of(
        3, 5, bytes(range(32)), bytes(range(16)), {0: [b'"/"', b"true"], 86_400_000: [b"7"]}, {0: 9, 86_400_000: 1}
    )
    told_block = published_keys.block_of(
        3, 5, bytes(range(32)), bytes(range(16)), {0: [b'"/"'], 86_400_000: [b"7"]}, {0: 9, 86_400_000: 1},
        {0: {b"true": 1 << 20, b'"/"': 741_455}},
    )  # fmt: skip
    return {
        "by-user": by_user.encode(by_user_block),
        "bounded": bounded.encode(bounded_block),
        "published-keys": published_keys.encode(published_block),
        "bounded version 2": bounded.encode(replace(bounded_block, lists=np.array([[3, 3 << 20, 0], [0, 0, 741_455]]))),
        "published-keys version 2": published_keys.encode(told_block),
        "tick": tick.encode(tick.Tick(4, 1234, 56, bytes(range(32)), ((1200, 8), (1236, 9)))),
        **{f"changelog {i + 1} of {len(chunks)}": chunk for i, chunk in enumerate(chunks)},
        "histogram key": row_keys[0],
        "histogram value": row_values[0],
        "progress key": progress_key,
        "progress value": progress_value,
    }


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({name: data.hex() for name, data in records().items()}, indent=1) + "\n")
