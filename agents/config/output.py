"""The section `[output]`: how the rows of public topics are written."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from susurrus.agents.formats.outputs import OUTPUT_FORMATS
from susurrus.agents.formats.outputs.json import JsonRows
from susurrus.agents.formats.registry import Registry
from susurrus.agents.types.one_of import OneOf, meanings
from susurrus.agents.types.section import Section


class OutputSettings(Section):
    """How released rows are written. It may change at any time: what is published stays the same."""

    format: Annotated[str, OneOf(OUTPUT_FORMATS)] = Field(
        default=JsonRows.name,
        description=f"How the values of `histogram`, `latest`, `top`, `private-stream` and `estimate` are written. "
        f"{meanings(OUTPUT_FORMATS)} Other topics stay as they are. `susurrus topics schema` prints the schema.",
    )
    registry: Registry | None = None
    """`avro` and `protobuf`: where schemas are registered, as `<topic>-value`. Workers ask it when they start. `json` does not
    use it."""

    @property
    def registered(self) -> bool:
        """Whether the format's schemas are registered."""
        return OUTPUT_FORMATS[self.format].registered

    def problems(self) -> Iterator[str]:
        """What is wrong with the section, one line each."""
        if self.registered and self.registry is None:
            yield (
                f'output.registry: is missing; output.format = "{self.format}" needs it, for example '
                '[output.registry] url = "https://registry:8081"'
            )
