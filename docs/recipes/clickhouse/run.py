"""Runs page-views.sql in chdb, which is ClickHouse as a library. Arguments: the file, and how many keys to wait for."""

import sys
import time
from pathlib import Path

from chdb.session import Session

*creates, query = Path(sys.argv[1]).read_text(encoding="utf-8").split(";\n\n")
wanted = int(sys.argv[2])
with Session() as session:
    for create in creates:
        try:
            session.query(create)
        except RuntimeError as error:
            # chdb 26.9 says so of a table of the Kafka engine, which works all the same.
            if "ENGINE = Kafka" not in create or "Shutdown was called" not in str(error):
                raise
    complete = "SELECT count() FROM page_views FINAL WHERE trigger = of_triggers"
    while int(str(session.query(complete, "CSV"))) < wanted:
        time.sleep(0.2)
    print(session.query(query, "PrettyCompactNoEscapes"), end="")
