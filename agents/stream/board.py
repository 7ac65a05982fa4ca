"""The board of private streams: each stream as a series with bands, and the answers to range queries."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from susurrus.agents.display.board import BadQuestion, Board, Query, whole
from susurrus.agents.display.keys import folded, identity, name_of, parts_of
from susurrus.agents.kafka.clients import Clients
from susurrus.agents.stream.mechanism import mechanism_of
from susurrus.agents.stream.pieces import Answers, Pieces
from susurrus.agents.stream.settings import StreamSettings
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.topics import private_stream
from susurrus.topics.private_stream import StreamRow

BINS: Final = 160
MOST_PIECES: Final = 4_000_000
"""Kept over all streams, 48 bytes each; pieces of further streams are not."""
_LISTED: Final = 50
_NAMES: Final = {"tops": "ToPS", "tops-paper": "ToPS as in the paper", "pak": "PAK"}


class StreamsBoard(Board):
    """Follows `private-stream`."""

    settings: StreamSettings

    def __init__(self, settings: StreamSettings, guarantee: str) -> None:
        super().__init__(settings)
        self._stream = settings.stream
        self._read = self.reader("private-stream")
        self._streams: dict[Any, Pieces] = {}
        self._by_name: dict[str, Pieces] = {}
        self._pieces = 0
        self._full = False
        self._about = {
            "page": "streams",
            "pipeline": settings.pipeline.name,
            "topic": settings.topic("private-stream"),
            "guarantee": " ".join(guarantee.split()),
            "strategy": _NAMES[self._stream.method],
            "why": None,
            "filtered": self._stream.method != "pak",
            "holdout": mechanism_of(self._stream).holdout,
        }

    def open(self, clients: Clients) -> None:
        """See `Board.open`."""
        self._follower = self.follower(clients, "private-stream")

    @property
    def caught_up(self) -> bool:
        """See `Board.caught_up`."""
        return self._follower.caught_up

    def poll(self, seconds: float) -> list[tuple[int, StreamRow]]:
        """See `Board.poll`: (partition, row) of each."""
        return [
            (int(message.partition() or 0), private_stream.decode_row(self._read(bytes(value))))
            for message in self._follower.read(seconds)
            if (value := message.value()) is not None
        ]

    def take(self, news: Sequence[tuple[int, StreamRow]]) -> bool:
        """See `Board.take`."""
        for partition, row in news:
            place = partition, identity(row.stream)
            pieces = self._streams.get(place)
            if pieces is None:
                if self._pieces >= MOST_PIECES:
                    self._full = True
                    continue
                pieces = self._streams[place] = Pieces(row.stream, self._stream)
                self._by_name[f"{name_of([partition, row.stream]):016x}"] = pieces
            before = len(pieces)
            pieces.add(row)
            self._pieces += len(pieces) - before
        return True

    def state(self, now: int) -> dict[str, Any]:
        """How many streams there are."""
        return {**self._about, "streams": len(self._streams), "pieces": self._pieces, "full": self._full}

    def answer(self, question: str, query: Query) -> dict[str, Any]:
        """`streams`, `series` or `range`."""
        if question == "streams":
            return self._list(query)
        if question == "series":
            return self._series(query)
        if question == "range":
            return self._range(query)
        raise BadQuestion("here are streams, series and range")

    def _list(self, query: Query) -> dict[str, Any]:
        """The streams whose id holds a text, by their id."""
        wanted = query.get("search", "").casefold()
        found = [(name, pieces) for name, pieces in self._by_name.items() if wanted in folded(pieces.name)]
        found.sort(key=lambda each: folded(each[1].name))
        listed = [
            {
                "name": name,
                "key": parts_of(pieces.name),
                "begin": pieces.begin,
                "end": pieces.end,
                "total": pieces.total,
            }
            for name, pieces in found[:_LISTED]
        ]
        return {"found": len(found), "streams": listed}

    def _pieces_of(self, query: Query) -> Pieces:
        pieces = self._by_name.get(query.get("stream", ""))
        if pieces is None or not len(pieces):
            raise BadQuestion("stream: is not known here")
        return pieces

    def _bounds(self, query: Query, pieces: Pieces) -> tuple[int, int]:
        first = whole(query, "from", pieces.begin, pieces.begin, pieces.end - 1)
        last = whole(query, "to", pieces.end, pieces.begin + 1, pieces.end)
        assert first is not None
        assert last is not None
        if first >= last:
            raise BadQuestion("from: must be before to")
        return first, last

    def _series(self, query: Query) -> dict[str, Any]:
        """Means of consecutive ranges: [from, to, plain, its error, filtered, its error]."""
        pieces = self._pieces_of(query)
        edges = pieces.edges(*self._bounds(query, pieces), BINS)
        first, last = edges[:-1], edges[1:]
        length = (last - first).astype(np.float64)
        columns = [each / length for each in _answers(pieces, first, last)]
        return {
            "key": parts_of(pieces.name),
            "theta": pieces.theta,
            "begin": pieces.begin,
            "end": pieces.end,
            "total": pieces.total,
            "points": [
                list(row) for row in zip(first.tolist(), last.tolist(), *(c.tolist() for c in columns), strict=True)
            ],
        }

    def _range(self, query: Query) -> dict[str, Any]:
        """The sum over one range."""
        pieces = self._pieces_of(query)
        first, last = self._bounds(query, pieces)
        try:
            plain, plain_error, filtered, filtered_error = (
                float(each[0]) for each in _answers(pieces, np.array([first]), np.array([last]))
            )
        except ConfigurationError as error:
            raise BadQuestion(str(error)) from None
        return {
            "from": first,
            "to": last,
            "plain": [plain, plain_error],
            "filtered": [filtered, filtered_error],
            "fits": bool(np.isnan(filtered)) or pieces.fits(first, last),
        }


def _answers(pieces: Pieces, first: Any, last: Any) -> tuple[Any, Any, Any, Any]:
    nothing = np.full(len(first), np.nan)
    filtered: Answers = pieces.filtered(first, last) or (nothing, nothing)
    return (*pieces.plain(first, last), *filtered)
