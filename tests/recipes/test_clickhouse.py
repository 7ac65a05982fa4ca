"""The ClickHouse recipe in chdb, which is ClickHouse as a library. It has no Kafka engine: the test brings the topic's values."""

import json
import re
from pathlib import Path

from confluent_kafka import Message

from tests.broker import Broker
from tests.recipes.conftest import Published, check_shown
from tests.recipes.programs import python_environment, quietly

PROGRAM = """
import sys
from pathlib import Path
from chdb.session import Session

with Session() as session:
    for statement in Path(sys.argv[1]).read_text(encoding="utf-8").split(";\\n"):
        if statement.strip():
            print(session.query(statement, "PrettyCompactNoEscapes"), end="")
"""

ENGINE = re.compile(r"ENGINE = Kafka\nSETTINGS\n(?:  kafka_\w+ = '[^']*',\n)+(?P<formats>(?:  \w+ = [^;]*)+);")


def test_the_view_fills_the_table_with_the_topics_rows(kafka: Broker, published: Published, tmp_path: Path) -> None:
    script = published.here("clickhouse/page-views.sql")
    engine = ENGINE.search(script)
    assert engine is not None
    *create, query = script.replace(engine[0], "ENGINE = Null;").split(";\n\n")

    def value(message: Message) -> str:
        return json.dumps(json.loads(message.value() or b""), ensure_ascii=False)

    values = "\n".join(value(message) for message in kafka.read_all(f"{published.prefix}.histogram"))
    insert = f"INSERT INTO page_views_queue SETTINGS {engine['formats']} FORMAT JSONEachRow\n{values}\n"
    # The engine's own clause is parsed, not run.
    parsed = f"EXPLAIN AST {script.partition(';')[0]}"
    statements = tmp_path / "page-views.sql"
    statements.write_text(";\n".join([*create, insert, query]), encoding="utf-8")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    python = python_environment("clickhouse")
    check_shown("clickhouse", quietly([python, str(program), str(statements)]))
    statements.write_text(parsed, encoding="utf-8")
    assert "Storage definition" in quietly([python, str(program), str(statements)])
