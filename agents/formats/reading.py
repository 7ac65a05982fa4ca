"""Makes the reader of a pipeline's raw records, from `[input]` and the paths that the pipeline wants."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from susurrus.agents.expressions.evaluation import Evaluation
from susurrus.agents.expressions.language import parse
from susurrus.agents.formats import FORMATS, InputSection, decoder_of, is_plain_json
from susurrus.agents.formats.beside import KEY, Beside, problem
from susurrus.agents.formats.envelopes.envelope import Bare
from susurrus.agents.formats.format import Format
from susurrus.agents.formats.items import ListStep
from susurrus.agents.formats.keys import SCALAR_KEYS
from susurrus.agents.formats.reader import OF_VALUE, RecordReader, value_paths
from susurrus.topics.records.fields import BESIDE, Path, check_paths, parse_path, written
from susurrus.topics.records.raw import ComputedField


class RecordSection(InputSection, Protocol):
    """`[input]`, as far as records are read by it."""

    @property
    def key_format(self) -> str:
        """A name in SCALAR_KEYS or FORMATS."""

    @property
    def lists(self) -> Sequence[tuple[str | ComputedField, str | None]]:
        """By which lists records are taken apart: (the list, what an item is called), from the outside in."""


def reader_of(
    source: RecordSection,
    paths: Sequence[Path],
    *,
    topic: str | None,
    partition: int | None,
    asked: Sequence[Path] | None = None,
) -> RecordReader:
    """Reads ``paths`` of the raw topic.

    topic, partition: of all records; None where each says its own. asked: the paths of the condition; None where there is none.
    Raises as `decoder_of`, and ValueError where paths lead to nothing.
    """
    steps, wanted = steps_of(source.lists, paths, asked or ())
    beside = [path for path in wanted if path[:1] == (BESIDE,) and path[1] not in OF_VALUE]
    key: str | Format = source.key_format
    if source.key_format not in SCALAR_KEYS:
        key = decoder_of(source, [path[2:] for path in beside if path[:2] == KEY], "key")
    return RecordReader(
        decoder_of(source, value_paths(wanted)),
        Beside(beside, key, topic=topic, partition=partition),
        paths=paths,
        wanted=wanted,
        steps=steps,
        asked=asked,
    )


def problems(source: RecordSection, paths: Sequence[Path]) -> Iterator[str]:
    """What is wrong with paths that the configuration names, one line each."""
    wanted = list(paths)
    try:
        wanted = _of_records(source, paths)
    except ValueError as conflict:
        yield f"input: {conflict}"
    of_value = value_paths(wanted)
    if (
        FORMATS[source.format].has_lines
        and () in of_value
        and any(path[:1] != (BESIDE,) for path in filter(None, of_value))
    ):
        yield (
            f'input.format = "{source.format}": $value is a list of lines, which has no fields beside it; take the lines apart, '
            'input.each = { of = "$value" }, or name no field'
        )
    for path in dict.fromkeys(path for path in [*paths, *wanted] if path[:1] == (BESIDE,)):
        if (said := problem(path, source.key_format)) is not None:
            yield f"input: {said}"
        elif path[1] == "envelope" and source.envelope == Bare.name and path[2] not in FORMATS[source.format].around:
            yield f'input: {written(path)}: records have no envelope with input.envelope = "{source.envelope}"; set input.envelope'


def fields_of_values(source: RecordSection, paths: Sequence[Path]) -> list[Path]:
    """Of the paths that the configuration names, those of fields of a value before it is taken apart."""
    return [path for path in _of_records(source, paths) if path[:1] != (BESIDE,)]


def _of_records(source: RecordSection, paths: Sequence[Path]) -> list[Path]:
    """What must be known of a record before it is taken apart. Raises as `steps_of`."""
    steps, wanted = steps_of(source.lists, paths, ())
    for step in steps:
        step.close()
    return wanted


def is_plain(source: RecordSection, paths: Sequence[Path]) -> bool:
    """Whether these paths are fields of JSON objects, each of which is one row: what the compiled decoders read."""
    return is_plain_json(source) and not source.lists and all(path[:1] != (BESIDE,) for path in paths)


def of_values(form: Format) -> RecordReader:
    """Reads what a format reads, and nothing beside it."""
    return RecordReader(form, Beside((), "none", topic="", partition=0), paths=form.paths, wanted=form.paths)


def steps_of(
    lists: Sequence[tuple[str | ComputedField, str | None]], paths: Sequence[Path], asked: Sequence[Path]
) -> tuple[list[ListStep], list[Path]]:
    """The steps, and what must be known of a record before the first of them; without steps, the paths as they are. Raises
    ValueError where one path leads through another."""
    steps: list[ListStep] = []
    wanted = list(paths)
    for of, name in reversed(lists):
        container = (
            parse_path(of) if isinstance(of, str) else Evaluation(parse(of.expression, listed=True), listed=True)
        )
        step = ListStep(container, name, wanted, asked)
        wanted = list(dict.fromkeys([*(path for path in wanted if path not in step.inner), *step.outer]))
        steps.insert(0, step)
    check_paths([path for path in value_paths(wanted) if path])  # the whole value may be wanted beside its fields
    return steps, wanted
