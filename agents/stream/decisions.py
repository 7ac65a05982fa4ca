"""What the stage of streams would make of raw records (stage.py): the reader, and the decoder of values and stream ids."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial

from susurrus.agents.config.input import InputSettings
from susurrus.agents.formats.beside import KEY
from susurrus.agents.formats.reading import reader_of
from susurrus.agents.kafka.messages import ReadRecord
from susurrus.agents.runtime.begun import Begun
from susurrus.agents.runtime.decisions import NOBODY, Decided, Decisions, RecordPart, called
from susurrus.agents.stream.mechanism import grid_of
from susurrus.agents.stream.settings import StreamSettings
from susurrus.mechanisms.arrays import Int64s
from susurrus.topics.records.fields import parse_path
from susurrus.topics.records.values import ValuesDecoder, ValuesSchema


class StreamDecisions(Decisions):
    """Of the kind's one stage. A value counts whatever its stamp is, so there is nothing of time to decide."""

    def __init__(self, settings: StreamSettings) -> None:
        self._settings = settings
        self._schema = schema_of(settings)
        self._nothing = replace(self._schema, value=NOBODY, stream=NOBODY)

    def decide(
        self, source: InputSettings, records: Sequence[ReadRecord], types: Int64s, *, now: int, begun: Begun | None
    ) -> Decided:
        """See `Decisions`."""
        return _decided(self._schema, source, records)

    def whole(self, source: InputSettings, records: Sequence[ReadRecord]) -> Decided:
        """See `Decisions`."""
        return _decided(self._nothing, source, records)

    def parts(self) -> Sequence[RecordPart]:
        """The stream and the value."""
        stream, value = self._schema.stream, self._schema.value
        of_stream = replace(self._nothing, stream=stream)
        setting = "stream.stream, which is the record's key" if stream is None else called("stream.stream", stream)
        return (
            RecordPart(setting, [KEY if stream is None else parse_path(stream)], None, partial(_decided, of_stream)),
            RecordPart(
                called("stream.value", value),
                [parse_path(value)],
                None,
                partial(_decided, replace(self._nothing, value=value)),
            ),
        )


def schema_of(settings: StreamSettings) -> ValuesSchema:
    """How to decode the raw topic's records."""
    stream = settings.stream
    return ValuesSchema(value=stream.value, bound=stream.bound, grid=grid_of(stream), stream=stream.stream)


def _decided(schema: ValuesSchema, source: InputSettings, records: Sequence[ReadRecord]) -> Decided:
    decoder = ValuesDecoder(schema)
    with closing(reader_of(source, decoder.paths, topic=None, partition=None)) as reader:
        chunks = list(reader.read(records, lambda row: True))
        read = sum(chunk.payloads for chunk in chunks)
        keys = [record.key for record in records] if schema.stream is None else ()
        return Decided(reason=decoder.decode(chunks, keys).reason, read=read, waiting=reader.waits)
