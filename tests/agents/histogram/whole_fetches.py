"""What route makes of fetches that come as record batches, or as parsed records."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from susurrus.agents.histogram import route
from susurrus.agents.histogram.route import RouteStage
from susurrus.agents.runtime.batch import Batch
from susurrus.agents.runtime.faust.record_batches import Fetched, batch_at
from susurrus.topics.dead_letter import decode_headers
from tests.agents.histogram.test_route_batches import chosen
from tests.agents.stages import WINDOW, Runner, services_of
from tests.record_batches import LZ4, record_batch


def routed(
    directory: Path, source: Mapping[str, Any], fetches: Sequence[Sequence[bytes | None]], *, whole: bool
) -> tuple[Any, ...]:
    """All outputs, counters, and the reasons of dead letters. source: the section `[input]`. whole: as record batches."""
    return routed_by(chosen(input=dict(source)), directory, fetches, whole=whole)


def routed_by(
    settings: Any, directory: Path, fetches: Sequence[Sequence[bytes | None]], *, whole: bool
) -> tuple[Any, ...]:
    """The same of a pipeline."""
    runner = Runner(RouteStage, services_of(settings), directory)
    start = 0
    for fetch, values in enumerate(fetches):
        batch, _ = batch_at(record_batch(values, first=start, codec=LZ4, append_time=True, stamp=WINDOW), 0)
        assert batch is not None
        fetched, end = Fetched([batch], start), start + len(values)
        runner.stage.take(Batch(start, end, fetched if whole else fetched.records(), 0))  # type: ignore[arg-type]
        assert runner.stage._intake.waits is None
        start = end
        if fetch % 2:
            runner.commit(now=WINDOW)
    runner.commit(now=WINDOW)
    outputs = [
        (output.topic, output.partition, output.messages, output.headers)
        for commit in runner.commits
        for output in commit.outputs
    ]
    letters = [decode_headers(headers).reason for *_, found in outputs for headers in found or ()]
    runner.close()
    return outputs, dict(runner.stage.counters), letters


class Decoded:
    """Counts what the compiled decoder has decoded, and what it has left: a number for each fetch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows, self.left = list[int](), list[int]()
        decode = route.RawBatchDecoder.decode

        def counted(*arguments: Any) -> Any:
            found = decode(*arguments)
            self.rows.append(len(found[0]))
            self.left.append(len(found[0].left))
            return found

        monkeypatch.setattr(route.RawBatchDecoder, "decode", counted)
