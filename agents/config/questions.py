"""What `susurrus config init` asks for the settings of one kind of pipeline. Each kind lists its own."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FileQuestion:
    """One setting.

    path: as a file has it, such as `stream.bound`. text: the question. comment: what stands behind the line in the file. default:
    the answer without one; None where there must be one. optional: whether the answer may be empty, which leaves the line out.
    field: whether it names a field of the records; of_type: of fields that are suggested. number: whether it is one in TOML.
    """

    path: str
    text: str
    comment: str
    default: str | None = None
    optional: bool = False
    field: bool = False
    of_type: str = ""
    number: bool = False

    @property
    def section(self) -> str:
        """The section of the setting."""
        return self.path.rpartition(".")[0]

    @property
    def name(self) -> str:
        """Its name there."""
        return self.path.rpartition(".")[2]
