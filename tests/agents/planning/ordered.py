"""The order in which `spool` takes the records of a workload, sorted in another way."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from susurrus.agents.planning.spool import public_priorities
from susurrus.agents.planning.workload import UserRecords


def ordered(chunks: Iterable[UserRecords], triggers: int) -> list[UserRecords]:
    """Each user's records trigger by trigger, and within a trigger by the public hash."""
    found: list[UserRecords] = []
    for records in chunks:
        turn = public_priorities(records, sum(before.users for before in found))
        order = np.lexsort((np.arange(len(turn)), turn, records.trigger(triggers), records.user))
        columns = {name: getattr(records, name)[order] for name in ("user", "key", "time")}
        values = None if records.values is None else records.values[order]
        found.append(replace(records, **columns, values=values))
    return found
