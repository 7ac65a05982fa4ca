"""The last trigger of a window whose rows are calibrated with those of all partitions: two commits, and a wait between them.

    1st commit   evidence of this partition's rows, without keys ──▶ published-keys; nothing public
    wait         until published-keys has the evidence of every partition (feedback.py)
    2nd commit   the calibrated rows ──▶ histogram, latest; the interval is closed as any other

The first commit changes no state but the mark that it was made. So whoever restarts before the second computes the same rows
again, from the same state and the same blocks. docs/decisions/0020-pooled-rows.md has what happens at each point.

Meta record: ``told``, the last interval whose evidence is in the topic.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from susurrus.agents.finding import Finding, waits
from susurrus.agents.histogram.evidence import EvidenceOf
from susurrus.agents.histogram.publication import Publication
from susurrus.agents.histogram.services import HistogramServices
from susurrus.agents.histogram.table import Gathered, Rows, joined_evidence
from susurrus.agents.runtime.commit import Output
from susurrus.mechanisms.calendar import Interval, Trigger, WindowIndex, WindowStart
from susurrus.mechanisms.histogram.strategy import Strategy
from susurrus.topics import evidence as evidence_codec
from susurrus.topics.evidence import EvidenceBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What is kept in memory between the commits.

    window: the one that ends. strategy: its mechanism. gathered: the increments of the interval. rows: of the window. public:
    whether the trigger has been published before, so that this is a replay. evidence: what the trigger makes of it, where windows
    add up.
    """

    interval: Interval
    window: WindowIndex
    strategy: Strategy[Any]
    gathered: dict[WindowStart, Gathered]
    rows: Rows
    public: bool
    evidence: EvidenceOf | None = None


class Barrier:
    """Holds one bounded partition's releases until all partitions have told what they must know of each other."""

    def __init__(
        self, services: HistogramServices, partition: int, meta: dict[str, Any], publication: Publication
    ) -> None:
        """meta: of the last commit."""
        index = services.published_keys
        if index is None:
            raise RuntimeError("rows are pooled through the published keys, which this strategy does not need")
        self._index = index
        self._services = services
        self._partition = partition
        self._publication = publication
        self._told = Interval(int(meta.get("told", meta["closed"])))
        self.held: Held | None = None

    def to_meta(self) -> dict[str, Any]:
        """The part that a commit carries."""
        return {"told": self._told}

    def hold(self, held: Held) -> Held:
        """Keep it until `release`."""
        self.held = held
        return held

    def release(self) -> Held | None:
        """What was kept."""
        held, self.held = self.held, None
        return held

    def has_told(self, interval: Interval) -> bool:
        """Whether a commit has written this partition's evidence of the window that ends with this interval."""
        return self._told >= interval

    def tell(self, held: Held) -> Output:
        """The output that tells all partitions this one's evidence, which counts as told from now on."""
        services, evidence = self._services, held.rows.evidence
        block = EvidenceBlock(
            partition=self._partition,
            interval=held.interval,
            window=services.calendar.window_start(held.window),
            last=True,
            total=len(evidence),
            config_digest=services.config_digest,
            epoch=bytes.fromhex(services.ledger.epoch),
            evidence=evidence,
        )
        self._told = held.interval
        pieces = evidence_codec.split(block, services.max_record_bytes)
        return Output(
            services.topic("published-keys"), 0, [{"value": evidence_codec.encode(piece)} for piece in pieces]
        )

    def wait(self, held: Held) -> Finding | None:
        """What the calibration waits for; None when it is done, or where the trigger is public already.

        Raises Refusal where records are lost, and ReplayMismatch where the evidence that was told comes from other data.
        """
        if held.public:
            return None
        start = self._services.calendar.window_start(held.window)
        pooled = self._index.pooled(start, held.interval, self._partition)
        if pooled is None:
            numbers = ", ".join(map(str, self._index.untold(start)[:8]))
            return self._index.unreadable or waits(
                "release",
                f"interval={held.interval} waits for the last rows of release {numbers or 'to be read'}",
                "see what status says of release",
            )
        # Other partitions have been calibrated with what was told, so what is published here must be the same rows.
        if not np.array_equal(pooled[self._partition], held.rows.evidence):
            raise self._publication.mismatch(held.window, Trigger(self._services.calendar.triggers_of(held.window)))
        held.rows.calibrate(held.strategy, joined_evidence(pooled.values()))
        return None
