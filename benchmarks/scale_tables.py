"""The tables of docs/scale.md about groups and pipelines, for results.py."""

from collections.abc import Callable, Iterator

from scale_model import GROUP, PIPELINES, Case, Quantity, held, predictions, ranked
from tables import load, table


def _cases(what: str) -> list[Case]:
    return ranked([row for row in load("scale/groups.jsonl") if row["what"] == what])


def groups() -> Iterator[str]:
    """What was measured of one pipeline."""
    body = [
        [
            f"{row['workers']} × {row['raw_partitions']}",
            str(row["tasks"]),
            f"{row['start_seconds']:.1f}",
            *(f"{row[name]:.1f}" if name in row else "" for name in ("left_seconds", "joined_seconds")),
            *(f"{row[name]:,}" for name in ("metadata_calls", "connections", "threads", "memory_mb")),
            f"{row['requests_per_second']:,.0f}",
            *(f"{row['cores'][of]:.2f}" for of in ("workers", "broker")),
        ]
        for row in _cases("group")
    ]
    header = [
        "workers × raw partitions",
        "tasks",
        "s to start",
        "s, one leaves",
        "s, it comes back",
        "metadata requests",
    ]
    header += ["connections", "threads of a worker", "MB of a worker", "requests/s", "cores, workers", "cores, broker"]
    yield from table(header, body)


def pipelines() -> Iterator[str]:
    """What was measured of many pipelines."""
    body = [
        [
            str(row["pipelines"]),
            f"{row['start_seconds']:.1f}",
            *(f"{row[name]:,}" for name in ("metadata_calls", "connections", "threads", "memory_mb")),
            f"{row['broker_memory_mb']:,}",
            f"{row['requests_per_second']:,.0f}",
            *(f"{row['cores'][of]:.2f}" for of in ("workers", "broker")),
        ]
        for row in _cases("pipelines")
    ]
    header = ["pipelines", "s to start", "metadata requests", "connections", "threads of a worker", "MB of a worker"]
    yield from table([*header, "MB of the broker", "requests/s", "cores, workers", "cores, broker"], body)


def _model(what: str, quantities: tuple[Quantity, ...]) -> Iterator[str]:
    body = [
        [
            found.quantity.title,
            found.formula,
            *(f"{value:,.{found.quantity.digits}f}" for value in (found.predicted, found.measured)),
            f"{found.off:+.0%}",
        ]
        for found in predictions(quantities, held(quantities, _cases(what)))
    ]
    yield from table(["of the largest case", "model, from the others", "predicted", "measured", "off"], body)


TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "scale-groups": groups,
    "scale-pipelines": pipelines,
    "scale-model-groups": lambda: _model("group", GROUP),
    "scale-model-pipelines": lambda: _model("pipelines", PIPELINES),
}
