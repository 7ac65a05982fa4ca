"""Which topics of raw events a pipeline reads, and what differs from one to the other: a part of the section `[input]`."""

import re
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from susurrus.agents.config.format_settings import FormatSettings
from susurrus.agents.types.section import TopicName


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is no regular expression ({error}); correct it") from None
    return text


TopicPattern = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_pattern)]


def literal_prefix(pattern: str) -> str:
    """What every name begins with that a regular expression matches, as far as it is written out plainly; empty where it is not."""
    if "|" in pattern:
        return ""
    begin = re.match(r"(?:[A-Za-z0-9_-]|\\[.-])*", pattern)
    found = "" if begin is None else begin.group()
    if pattern[len(found) :][:1] in ("?", "*", "{"):  # the last character may be missing
        found = found[:-2] if found[-2:-1] == "\\" else found[:-1]
    return found.replace("\\", "")


class RawTopics(FormatSettings):
    """The raw topics, by name or by a pattern, and how they are written."""

    topic: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]*$", max_length=249)] = ""
    """The existing topic of raw events. It is only read. This, `topics` or `topic_pattern` must be set."""
    topics: tuple[TopicName, ...] = ()
    """Kind `histogram`: several topics of raw events, which share users, caps, clock, windows and budget. Of a user's records of
    one key and trigger, those of earlier topics of this list come first. `susurrus topics add-input` adds a topic to a pipeline
    that runs; from then on it may be written here, at the end."""
    topic_pattern: TopicPattern | None = None
    """Kind `histogram`: a regular expression over whole names of topics, in place of a list. What it matches when the pipeline
    begins is read, in the order of the names. A topic that comes later is added by `susurrus topics add-input`."""
    formats: dict[TopicName, FormatSettings] = Field(default={})
    """How single topics of several are written, by the topic's name: `[input.formats."orders"]` with `format` and what belongs to
    it. A topic without a section is written as `[input]` says. A section may be there for a topic that is added later."""

    def read_files(self, directory: Path) -> None:
        """Read the schemas. Raises ConfigurationError where one cannot be read."""
        self.read_schema(directory, "input")
        for topic, written in self.formats.items():
            written.read_schema(directory, f'input.formats."{topic}"')

    @model_validator(mode="after")
    def _one_spelling(self) -> Self:
        given = [name for name in ("topic", "topics", "topic_pattern") if getattr(self, name)]
        if len(given) != 1:
            found = "nothing says which topic is read" if not given else f"{' and '.join(given)} exclude each other"
            raise ValueError(f'{found}; set topic = "...", or topics = [...], or topic_pattern = "..."')
        if twice := [name for name in self.topics if self.topics.count(name) > 1]:
            raise ValueError(f'topics: "{twice[0]}" is there twice; name each topic once')
        if foreign := [name for name in self.formats if not self.may_read(name)]:
            raise ValueError(
                f'formats."{foreign[0]}": topic_pattern = "{self.topic_pattern}" does not match it; correct one of them'
            )
        return self

    def may_read(self, topic: str) -> bool:
        """Whether a topic may be one of the pipeline's: with a pattern, it must match."""
        return self.topic_pattern is None or re.fullmatch(self.topic_pattern, topic) is not None

    @property
    def listed(self) -> tuple[str, ...]:
        """The raw topics that the file names; empty with a pattern."""
        return (self.topic,) if self.topic else self.topics

    @property
    def called(self) -> str:
        """What messages call the input: its topics, or the pattern."""
        return ", ".join(self.listed) if self.topic_pattern is None else f"/{self.topic_pattern}/"

    def of(self, topic: str) -> Self:
        """The section as it is for one raw topic alone."""
        own = self.formats.get(topic)
        written = {} if own is None else {name: getattr(own, name) for name in FormatSettings.model_fields}
        alone: dict[str, Any] = {"topic": topic, "topics": (), "topic_pattern": None, "formats": {}}
        found = self.model_copy(update={**written, **alone})
        if own is not None:
            found._schema_text = own.schema_text
        return found

    @property
    def each_format(self) -> dict[str, Self]:
        """The section for every way in which records are written, by the path of the settings that say so."""
        own = {f'input.formats."{topic}"': self.of(topic) for topic in self.formats}
        all_differ = bool(self.listed) and set(self.listed) <= set(self.formats)
        return own if all_differ else {"input": self.of(self.listed[0] if self.topic else ""), **own}
