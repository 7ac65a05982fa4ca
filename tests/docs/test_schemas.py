"""docs/schemas/ is what `susurrus topics schema` prints."""

import json

import pytest

from susurrus.topics import histogram, progress, rolling, threshold
from tests.docs.make_schemas import PAGE_VIEWS, SCHEMAS, files


def test_the_files_are_up_to_date() -> None:
    found = {path.name: path.read_text(encoding="utf-8") for path in SCHEMAS.iterdir()}
    made: dict[str, str] = {}
    for name, text in files():
        assert made.setdefault(name, text) == text  # two configurations that differ in it need two names
    assert found == made, "run: python -m tests.docs.make_schemas"


def test_the_command_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    from typer.testing import CliRunner

    from susurrus.agents.cli.main import app

    for arguments, name in (
        ([], "histogram.json"),
        (["--format", "avro", "--topic", "latest"], "histogram.avsc"),
        (["--format", "protobuf"], "histogram.proto"),
        (["--topic", "progress"], "progress.json"),
    ):
        result = CliRunner().invoke(app, ["topics", "schema", "--config", str(PAGE_VIEWS), *arguments])
        assert (result.exit_code, result.stdout) == (0, (SCHEMAS / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "arguments", [["--topic", "by-user"], ["--format", "xml"], ["--topic", "progress", "--format", "avro"]]
)
def test_what_has_no_schema_is_told(arguments: list[str]) -> None:
    from typer.testing import CliRunner

    from susurrus.agents.cli.main import app

    result = CliRunner().invoke(app, ["topics", "schema", "--config", str(PAGE_VIEWS), *arguments])
    assert result.exit_code != 0
    assert not result.stdout


@pytest.mark.parametrize("name", [path.name for path in sorted(SCHEMAS.glob("*.json"))])
def test_each_is_a_json_schema_and_refuses_a_row_without_a_member(name: str) -> None:
    import jsonschema  # takes seconds, which every process that collects this file would spend

    schema = json.loads((SCHEMAS / name).read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    with pytest.raises(jsonschema.ValidationError, match="is a required property"):
        jsonschema.validate({"schema": 1}, schema)


def test_what_the_codecs_write_follows_them() -> None:
    release = histogram.TriggerHeader(
        window_start=0, window_end=1, trigger=1, of_triggers=2, strategy="closing", epoch="6f0c"
    )
    import jsonschema
    import numpy as np

    column = histogram.ColumnRows(name="visitors", estimate=np.array([3]), std_error=1.5)
    said = progress.Progress(
        window=0,
        trigger=1,
        of_triggers=2,
        partition=0,
        of_partitions=4,
        rows=1,
        epoch="6f0c",
        epoch_number=1,
        rolling_rows=1,
        remembered=1,
        persistence=0.3,
    )
    header = rolling.RollingHeader(
        period_start=0,
        period_end=2,
        window_start=1,
        window_end=3,
        trigger=1,
        of_triggers=2,
        strategy="closing",
        epoch="6f0c",
    )
    counted = np.array([0])
    chosen = threshold.ThresholdRecord(
        version=1, theta=96.0, epsilon=1.0, alpha=0.5, reports=500, phase1_epsilon=1.0, bound=100.0
    )
    for name, value in (
        ("histogram", histogram.encode_rows(release, [b'"/"'], [column])[1][0]),
        ("rolling", rolling.encode_rows(header, [b'"/"'], [column], counted, counted + 2)[1][0]),
        ("progress", progress.encode(said)[1]),
        ("threshold", threshold.encode(chosen)[0][1]),
    ):
        schema = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
        row = json.loads(value)
        jsonschema.validate(row, schema)
        assert row.keys() == schema["properties"].keys()
