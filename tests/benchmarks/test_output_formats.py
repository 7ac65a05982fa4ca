"""What is measured of output formats: every format on every path, and that a path is what it is called."""

import json
import subprocess
import sys

import pytest

from benchmarks import output_formats
from susurrus.agents.formats.outputs import OUTPUT_FORMATS

pytest.importorskip("fastavro")
pytest.importorskip("authlib")


@pytest.mark.parametrize("kind", output_formats.KINDS)
def test_formats_have_the_same_rows(kind: str) -> None:
    by_row, by_column = (
        {row["format"]: row for row in output_formats.measure(kind, path, 300)} for path in ("serialiser", "python")
    )
    assert by_row.keys() == by_column.keys() == OUTPUT_FORMATS.keys()
    for form, row in by_column.items():
        assert row["bytes_a_row"] == by_row[form]["bytes_a_row"]
        assert row["rows"] == 300
        assert row["memory_mb"] is not None
        assert by_row[form]["memory_mb"] is None
    assert by_column["avro"]["bytes_a_row"] < by_column["protobuf"]["bytes_a_row"] < by_column["json"]["bytes_a_row"]
    assert by_column["json"]["of_json"] == 1


@pytest.mark.thorough
def test_each_path_is_a_process_of_its_own() -> None:
    command = [sys.executable, output_formats.__file__, "--rows", "50", "--json"]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    found = [json.loads(line) for line in printed.splitlines()]
    paths = output_formats.PATHS if output_formats.compiled is not None else output_formats.PATHS[1:]
    assert [(row["rows_are"], row["path"], row["format"]) for row in found] == [
        (kind, path, form) for kind in output_formats.KINDS for path in paths for form in OUTPUT_FORMATS
    ]
