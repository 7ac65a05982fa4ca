"""Records that a stage has refused, gathered until the commit that has read them, for every kind."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from susurrus.agents.runtime.commit import Output
from susurrus.agents.runtime.services import Services
from susurrus.topics.dead_letter import DeadLetter, Headers, encode_headers
from susurrus.topics.records.reason import Reason


class DeadLetters:
    """The dead letters of one task. partition: of the topic of dead letters. topic, raw_partition: where the records are; by
    default the partition has the same number. keep: with key and value, where they fit into a record."""

    def __init__(
        self,
        services: Services,
        partition: int,
        *,
        stage: str,
        topic: str,
        keep: bool,
        raw_partition: int | None = None,
    ) -> None:
        self._target = services.topic("dead-letter")
        self._limit = services.max_record_bytes
        self._partition, self._stage, self._topic, self._keep = partition, stage, topic, keep
        self._raw_partition = partition if raw_partition is None else raw_partition
        self._messages: list[dict[str, Any]] = []
        self._headers: list[Headers] = []
        self._reasons: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._messages)

    def refuse(
        self,
        records: Sequence[Any],
        reason: npt.NDArray[np.integer],
        record_of: npt.NDArray[np.int64] | None = None,
        item_of: npt.NDArray[np.int64] | None = None,
    ) -> int:
        """Note the rows whose reason is not OK, and return their number.

        reason: one for each row. record_of, item_of: each row's record, which rises, and its place in it; None where every record
        is one row. Of a record's letters the first has its contents. With all of them a record of a megabyte, each of whose items
        is bad, would be half a terabyte of letters.
        """
        bad = np.flatnonzero(reason).tolist()
        before = -1
        for row in bad:
            at = row if record_of is None else int(record_of[row])
            record = records[at]
            value, key = (record.value, record.key) if self._keep and at != before else (None, None)
            before = at
            if len(value or b"") + len(key or b"") > self._limit:
                value = key = None
            self._messages.append({"value": value, "key": key})
            why = Reason(int(reason[row]))
            letter = DeadLetter(
                why,
                self._topic,
                self._raw_partition,
                record.offset,
                stage=self._stage,
                item=None if item_of is None or item_of[row] < 0 else int(item_of[row]),
            )
            self._headers.append(encode_headers(letter))
            self._reasons[why.name] += 1
        return len(bad)

    def outputs(self) -> list[Output]:
        """The outputs for a commit. The letters are forgotten afterwards."""
        if not self._messages:
            return []
        output = Output(self._target, self._partition, self._messages, self._headers, self._reasons)
        self._messages, self._headers, self._reasons = [], [], Counter()
        return [output]
