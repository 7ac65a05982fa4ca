"""charges: what every pipeline has charged to the windows of a raw topic. Compacted, internal, one per cluster.

A user's events may feed several pipelines, under any prefix, so the total is kept per raw topic, not per pipeline. A pipeline
that reads several topics is charged on each of them. The order of the log decides: a charge stands if it fits the total
together with all records before it (mechanisms/spend.py does the arithmetic).

A command may charge, too: `susurrus tune` does, for what it recommends. It charges under a name that no pipeline can have.

A tombstone withdraws a charge: of a window that a budget which renews had no room for, and that was skipped (runtime/standing.py).
"""

import msgspec

from susurrus.topics.wire.json_rows import decoder
from susurrus.topics.wire.timestamps import EARLIEST, LATEST, format_time

VERSION = 1


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """What one window costs each of its users. window: start in ms. pipeline: with its prefix, ``<prefix>.<name>``. begin, end:
    it pays for records with event times in [begin, end), in ms; None where that is not known, and then in all of time.

    mu: of Gaussian DP, for all mechanisms of the pipeline together. delta_selection: the share of delta that adds up
    instead of composing. Neighbours: one user's records of the window.
    """

    raw_topic: str
    window: int
    pipeline: str
    epoch: str
    epsilon: float
    delta: float
    mu: float
    delta_selection: float
    begin: int | None = None
    end: int | None = None
    schema: int = VERSION

    @property
    def extent(self) -> tuple[int, int]:
        """[begin, end) in ms of the event times of the records that it pays for."""
        return (EARLIEST if self.begin is None else self.begin, LATEST if self.end is None else self.end)


decode = decoder(Charge, "charge", VERSION)


def name_of_command(pipeline: str, command: str) -> str:
    """What stands for the pipeline in a charge of one of its commands; its epoch is the id of the run. Names have no slash."""
    return f"{pipeline}/{command}"


def seen_by(prefix: str, pipeline: str) -> str:
    """What a pipeline, as a charge names it, is called by those with a prefix: theirs without it. Names have no dot."""
    return pipeline.removeprefix(f"{prefix}.")


def pays_for_window(charge: Charge) -> bool:
    """Whether a pipeline charged what it publishes of the window. Otherwise a command did, once; the window says when."""
    return "/" not in charge.pipeline


def key(raw_topic: str, window: int, pipeline: str, epoch: str) -> bytes:
    """Key of the charge for a window (start in ms)."""
    return f"charge/{raw_topic}/{format_time(window)}/{pipeline}/{epoch}".encode()


def encode(charge: Charge) -> tuple[bytes, bytes]:
    """Key and value."""
    return key(charge.raw_topic, charge.window, charge.pipeline, charge.epoch), msgspec.json.encode(charge)
