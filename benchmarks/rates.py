"""The arithmetic of the benchmarks: rates while warm, the best of several runs, ratios, percentiles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.usage import difference


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the records of a run: seconds of wall time, and of processor time by what spent it."""

    records: int
    seconds: float
    cpu: Mapping[str, float] = field(default_factory=dict)

    @property
    def events_per_second(self) -> float:
        """Records per second of wall time."""
        return self.records / self.seconds

    def cpu_us(self) -> dict[str, float]:
        """Microseconds of processor time per record; what is below a hundredth is left out."""
        spent = {name: round(seconds / self.records * 1e6, 2) for name, seconds in self.cpu.items()}
        return {name: us for name, us in spent.items() if us > 0}


@dataclass(frozen=True, slots=True)
class Run:
    """One run. whole: from the first record read. first: the part of it, or a run of its own, that is not warm, if known.

    counted: records "in", "filtered" and "counted", by the one who ran, if it told. row: what was asked of it (Row.name).
    """

    what: str
    whole: Part
    first: Part | None = None
    written: Mapping[str, int] = field(default_factory=dict)
    memory_mb: float = 0.0
    counted: Mapping[str, int] = field(default_factory=dict)
    row: str = "plain"


def rest(whole: Part, first: Part) -> Part | None:
    """What is left of the whole without its first part; None where the figures make no sense (noise on a short run)."""
    records, seconds = whole.records - first.records, whole.seconds - first.seconds
    if records <= 0 or seconds <= 0:
        return None
    return Part(records, seconds, difference(whole.cpu, first.cpu))


def steady(runs: Sequence[Run], *, by_sizes: bool) -> Part | None:
    """The warm part of several runs of one peer.

    by_sizes: the first parts are runs of their own. Then the fastest small one is taken from the fastest large one: a hiccup of a
    small run must not make the rest look faster. Otherwise it is the fastest of the rests.
    """
    known = [(run.whole, run.first) for run in runs if run.first is not None]
    if not known:
        return None
    if by_sizes:
        return rest(min((w for w, _ in known), key=_seconds), min((f for _, f in known), key=_seconds))
    rests = [part for whole, first in known if (part := rest(whole, first)) is not None]
    return min(rests, key=lambda part: part.seconds / part.records, default=None)


def _seconds(part: Part) -> float:
    return part.seconds


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values do not exceed."""
    ranked = sorted(values)
    return ranked[max(0, -(-int(share * 1000) * len(ranked) // 1000) - 1)]


def rows(runs: Sequence[Run], *, by_sizes: Sequence[str] = ("susurrus",)) -> list[dict[str, Any]]:
    """One object for each peer and row, as ``--json`` prints it.

    by_sizes: how the names of peers begin whose first part is a run of its own. Ratios are to what Kafka Streams does in the same
    row, warm, with the settings and threads that are fastest there; and to what the same peer does in the row "plain".
    """
    cases: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        cases.setdefault((run.row, run.what), []).append(run)
    sized = tuple(by_sizes)
    warm = {(row, what): steady(of, by_sizes=what.startswith(sized)) for (row, what), of in cases.items()}
    rates = {case: part.events_per_second for case, part in warm.items() if part}
    return [
        _row(what, of, warm[row, what], best_kafka_streams(rates, row), rates.get(("plain", what)), sized)
        for (row, what), of in cases.items()
    ]


def best_kafka_streams(steady_rates: Mapping[tuple[str, str], float], row: str) -> float | None:
    """The highest warm rate of Kafka Streams in a row; None where none was measured. steady_rates: by row and peer."""
    found = (rate for (of, what), rate in steady_rates.items() if of == row and what.startswith("kafka-streams"))
    return max(found, default=None)


def _row(
    what: str,
    runs: Sequence[Run],
    warm: Part | None,
    best: float | None,
    plain: float | None,
    sized: tuple[str, ...],
) -> dict[str, Any]:
    fastest = min(runs, key=lambda run: run.whole.seconds)
    whole = fastest.whole
    steady_rate = None if warm is None else warm.events_per_second
    return {
        "what": what,
        "row": fastest.row,
        "records": whole.records,
        "seconds": round(whole.seconds, 3),
        "events_per_second": round(whole.events_per_second),
        "ratio_to_kafka_streams": round(whole.events_per_second / best, 3) if best else None,
        "steady_events_per_second": None if steady_rate is None else round(steady_rate),
        "steady_ratio": round(steady_rate / best, 3) if best and steady_rate else None,
        "ratio_to_plain": round(steady_rate / plain, 3) if plain and steady_rate else None,
        "counted": dict(fastest.counted),
        "cpu_us": (warm or whole).cpu_us(),
        "bytes_per_record": {topic: round(size / whole.records, 2) for topic, size in sorted(fastest.written.items())},
        "memory_mb": round(max(run.memory_mb for run in runs)),
        "runs": [_single(run, by_sizes=what.startswith(sized)) for run in runs],
    }


def _single(run: Run, *, by_sizes: bool) -> dict[str, Any]:
    warm = steady([run], by_sizes=by_sizes)
    return {
        "seconds": round(run.whole.seconds, 3),
        "events_per_second": round(run.whole.events_per_second),
        "first_records": run.first.records if run.first else None,
        "first_seconds": round(run.first.seconds, 3) if run.first else None,
        "steady_events_per_second": None if warm is None else round(warm.events_per_second),
    }
