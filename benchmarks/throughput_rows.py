"""The rows of the throughput benchmark: what is asked of our workers and of Kafka Streams alike (Rows.java has the other half).

plain         JSON, one key
filter        a condition, which leaves out one record in a hundred
sql           a pipeline in SQL: that condition, a key of two computed parts, and a computed value
avro, protobuf, json-schema     the plain row over records in Confluent's framing, with a schema registry
arrays        five observations in a record, each of which is counted
"""

from dataclasses import dataclass

from benchmarks.encodings import VALUES
from benchmarks.inputs import DAY_MS, Feed

LEAST = 10
"""Values below are left out by a row with a condition."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row.

    encoding: of its records, in ENCODINGS. settings: lines of ``[input]``, with {registry} for the address of the registry. sql:
    the statement that says what is published, with {topic}; then there are no such settings. cap: records a user. filters:
    whether the condition is asked for.
    """

    name: str
    encoding: str = "json"
    settings: str = 'user = "u"\nkey = ["k"]'
    sql: str = ""
    cap: int = 32
    filters: bool = False

    def expected(self, records: int) -> dict[str, int]:
        """How many of so many records come in, are left out and are counted: the same for everyone."""
        filtered = (records // VALUES * LEAST + min(records % VALUES, LEAST)) if self.filters else 0
        return {"in": records, "filtered": filtered, "counted": records - filtered}

    def statement(self, feed: Feed) -> str:
        """The SQL over this feed, whose triggers are whole seconds apart; empty where the row has none."""
        return self.sql.format(topic=feed.topic, cap=self.cap, seconds=DAY_MS // 1000 // feed.triggers)


PLAIN = Row("plain")
_KEYED = PLAIN.settings
_REGISTRY = 'registry = {{ url = "{registry}" }}'
_SQL = """
SELECT WITH DIFFERENTIAL_PRIVACY
  OPTIONS(epsilon = 6, delta = 1e-9, strategy = 'toeplitz', privacy_unit_column = u, max_rows_contributed = {cap})
  upper(k) AS name, length(k) AS size, COUNT(*) AS visits, SUM(v / 10 CLAMPED BETWEEN 0 AND 100) AS tens
FROM "{topic}"
WHERE v >= 10
GROUP BY name, size, TUMBLE(ROWTIME, INTERVAL '1' DAY)
EMIT EVERY INTERVAL '{seconds}' SECOND
"""
ROWS = {
    row.name: row
    for row in (
        PLAIN,
        Row("filter", settings=f'{_KEYED}\nwhere = "v >= {LEAST}"', filters=True),
        Row("sql", sql=_SQL, filters=True),
        Row("avro", "avro", f'{_KEYED}\nformat = "avro"\n{_REGISTRY}'),
        Row("protobuf", "protobuf", f'{_KEYED}\nformat = "protobuf"\nmessage = "susurrus.proto.Event"\n{_REGISTRY}'),
        Row("json-schema", "json-schema", f'{_KEYED}\nframing = "confluent"'),
        # Users have whole records: with twice the cap as few of their observations are dropped as in the other rows.
        Row("arrays", "arrays", 'user = "u"\nkey = ["item.k"]\neach = {{ of = "items", as = "item" }}', cap=64),
    )
}
