"""Statements: what they become, and what an operator reads where one is wrong."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.agents.sql.source import StatementText
from susurrus.agents.sql.statement import Statement, statement
from susurrus.mechanisms.errors import ConfigurationError

OPTIONS = "epsilon = 6, delta = 1e-9, privacy_unit_column = user_id"
GOOD = (
    f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS({OPTIONS}) url, COUNT(*) AS views\n"
    "FROM web_logs WHERE status = 200\n"
    "GROUP BY url, TUMBLE(ts, INTERVAL '1' DAY) EMIT EVERY INTERVAL '15' MINUTE"
)


def read(text: str) -> Statement:
    return statement(StatementText("p.sql", text))


def column(text: str) -> dict[str, Any]:
    """The table of one column."""
    [table] = read(GOOD.replace("COUNT(*) AS views", text)).settings["columns"]
    return dict(table)


def option(text: str) -> dict[str, Any]:
    """The settings with one more option."""
    return read(GOOD.replace(OPTIONS, f"{OPTIONS}, {text}")).settings


def test_the_listing_of_the_paper() -> None:
    text = """
        SELECT WITH DIFFERENTIAL_PRIVACY
          OPTIONS(epsilon = 6, delta = 1e-9, privacy_unit_column = user_id, max_groups_contributed = 32)
          url, COUNT(*) AS views, SUM(bytes CLAMPED BETWEEN 0 AND 100000) AS bytes
        FROM web_logs WHERE status = 200  -- FROM here, nothing: 'not a string
        GROUP BY url, TUMBLE(ts, INTERVAL '1' DAY)
        EMIT EVERY INTERVAL '15' MINUTE;
    """
    assert read(text).settings == {
        "privacy.epsilon": 6,
        "privacy.delta": 1e-9,
        "input.user": "user_id",
        "input.topic": "web_logs",
        "input.where": "status = 200",
        "input.time": "ts",
        "input.key": ["url"],
        "bounds.max_records_per_user": 32,
        "bounds.max_records_per_key": 1,
        "columns": [
            {"name": "views", "kind": "count"},
            {"name": "bytes", "kind": "sum", "field": "bytes", "lower": 0, "upper": 100_000},
        ],
        "window.length": "1d",
        "window.trigger_every": "15m",
    }


def test_without_a_key_there_is_one_total_over_all_records() -> None:
    total = GOOD.replace(") url,", ")").replace("GROUP BY url, ", "GROUP BY ")
    settings = read(total.replace(OPTIONS, f"{OPTIONS}, max_groups_contributed = 4")).settings
    assert settings["input.key"] == []
    # There is one group, which any number of groups allows. A cap on records stays with the settings, which know it.
    assert settings["bounds.max_records_per_key"] == 1
    assert not {"bounds.max_records_per_user", "bounds.max_keys_per_user"} & settings.keys()
    text = GOOD.replace(") url,", ") 'all' AS everything,").replace("GROUP BY url", "GROUP BY everything")
    assert read(text).settings["input.key"] == [{"name": "everything", "expression": "'all'"}]


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("count( * ) as views", {"kind": "count"}),
        ("COUNT(DISTINCT user_id) AS views", {"kind": "users"}),
        ("AVG(a.b CLAMPED BETWEEN -5 AND 5) AS views", {"kind": "mean", "field": "a.b", "bound": 5}),
        ("VAR_POP(a CLAMPED BETWEEN 0 AND 5) AS views", {"kind": "variance", "field": "a", "lower": 0, "upper": 5}),
        ("VARIANCE(a CLAMPED BETWEEN -5 AND 5) AS views", {"kind": "variance", "field": "a", "bound": 5}),
        ("stddev_pop(a CLAMPED BETWEEN 0 AND 5) AS views", {"kind": "stddev", "field": "a", "lower": 0, "upper": 5}),
        ("STDDEV(a CLAMPED BETWEEN 0 AND 5) AS views", {"kind": "stddev", "field": "a", "lower": 0, "upper": 5}),
        (
            'SUM("x.y" CLAMPED BETWEEN -1.5 AND 2) AS views',
            {"kind": "sum", "field": r"x\.y", "lower": -1.5, "upper": 2},
        ),
        (
            "SUM(bytes /* of a record */ / 1000 CLAMPED BETWEEN 0 AND 100 ROUNDED TO 0.5) AS views",
            {"kind": "sum", "expression": "bytes / 1000", "lower": 0, "upper": 100, "grid": 0.5},
        ),
        (
            "SUM(CASE WHEN a BETWEEN 1 AND 2 THEN b ELSE 0 END CLAMPED BETWEEN 0 AND 9) AS views",
            {"kind": "sum", "expression": "CASE WHEN a BETWEEN 1 AND 2 THEN b ELSE 0 END", "lower": 0, "upper": 9},
        ),
        (
            "SUM(bytes, contribution_bounds_per_group => (0, 7)) AS views",
            {"kind": "sum", "field": "bytes", "lower": 0, "upper": 7},
        ),
    ],
)
def test_a_column(text: str, table: dict[str, Any]) -> None:
    assert column(text) == {"name": "views", **table}


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("max_groups_contributed = 5", {"max_records_per_user": 5, "max_records_per_key": 1}),
        ("max_rows_contributed = 5", {"max_records_per_user": 5}),
        ("max_rows_per_group = 3", {"max_records_per_key": 3}),
        (
            "max_groups_contributed = 5, max_rows_per_group = 3",
            {"max_records_per_user": 15, "max_records_per_key": 3, "max_keys_per_user": 5},
        ),
        (
            "max_groups_contributed = 5, max_rows_contributed = 9, max_rows_per_group = 2",
            {"max_records_per_user": 9, "max_records_per_key": 2, "max_keys_per_user": 5},
        ),
    ],
)
def test_the_bounds(text: str, settings: dict[str, int]) -> None:
    found = option(text)
    assert {n.removeprefix("bounds."): of for n, of in found.items() if n.startswith("bounds.")} == settings


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("min_privacy_units_per_group = 10", "keys.minimum_users", 9),
        ("group_selection_strategy = PUBLIC_GROUPS", "keys.discover", False),
        ("strategy = 'dp-sqlp'", "privacy.strategy", "dp-sqlp"),
        ("strategy = toeplitz", "privacy.strategy", "toeplitz"),
        ("remember = 0", "keys.remember", 0),
        ("remember = 12", "keys.remember", 12),
        ("evidence_windows = 4", "keys.evidence_windows", 4),
        ("time_unit = 'iso'", "input.time_unit", "iso"),
        ("time_format = '%d.%m.%Y %z'", "input.time_format", "%d.%m.%Y %z"),
        ("time_zone = 'Europe/Berlin'", "input.time_zone", "Europe/Berlin"),
        ("allowed_lateness = INTERVAL 2 HOURS", "window.allowed_lateness", "2h"),
    ],
)
def test_an_option(text: str, name: str, value: Any) -> None:
    assert option(text)[name] == value


@pytest.mark.parametrize(
    ("select", "group", "key"),
    [
        ("url, geo.country", "url, geo.country", ["url", "geo.country"]),
        ('"two words"', '"two words"', ["two words"]),
        ("split_part(url, '?', 1) AS path", "path", [{"name": "path", "expression": "split_part(url, '?', 1)"}]),
        ("lower(url) AS u", "LOWER( url )", [{"name": "u", "expression": "lower(url)"}]),
        ("url AS page", "page", [{"name": "page", "expression": "url"}]),
        ("'a -- b' || url AS u", "u", [{"name": "u", "expression": "'a -- b' || url"}]),
    ],
)
def test_the_key(select: str, group: str, key: list[Any]) -> None:
    text = GOOD.replace(") url,", f") {select},").replace("GROUP BY url", f"GROUP BY {group}")
    assert read(text).settings["input.key"] == key


@pytest.mark.parametrize("unit", ["day", "week", "month"])
def test_a_window_in_a_time_zone(unit: str) -> None:
    found = read(GOOD.replace("INTERVAL '1' DAY", f"INTERVAL '1' {unit}, 'Europe/Berlin'")).settings
    assert (found["window.length"], found["window.time_zone"]) == (f"1 {unit}", "Europe/Berlin")
    assert "window.origin" not in found


def test_cumulate_is_a_window_with_a_release_at_every_step() -> None:
    tumble = read(GOOD).settings
    cumulate = GOOD.replace("TUMBLE(ts, INTERVAL '1' DAY)", "CUMULATE(ts, INTERVAL '15' MINUTE, INTERVAL '1' DAY)")
    assert read(cumulate).settings == tumble
    alone = cumulate.replace("EMIT EVERY INTERVAL '15' MINUTE", "")
    assert alone != cumulate
    assert read(alone).settings == tumble
    days = read(alone.replace("INTERVAL '1' DAY", "INTERVAL '1' DAY, 'Asia/Kolkata'")).settings
    assert days == {**tumble, "window.length": "1 day", "window.time_zone": "Asia/Kolkata"}
    origin = read(alone.replace("INTERVAL '1' DAY", "INTERVAL '1' DAY, TIMESTAMP '2026-01-01T05:00:00Z'")).settings
    assert origin == {**tumble, "window.origin": "2026-01-01T05:00:00Z"}


def test_window_and_topic() -> None:
    text = GOOD.replace(
        "TUMBLE(ts, INTERVAL '1' DAY)", "TUMBLE(rowtime, INTERVAL 1 WEEK, TIMESTAMP '2026-01-01T05:00:00Z')"
    )
    found = read(text.replace("web_logs", "web-logs.v2").replace("WHERE status = 200", "")).settings
    assert (found["input.time"], found["window.length"]) == ("kafka", "7d")
    assert (found["input.topic"], found["window.origin"]) == ("web-logs.v2", "2026-01-01T05:00:00Z")
    assert "input.where" not in found
    assert read(GOOD.replace("web_logs", '"web-logs"')).settings["input.topic"] == "web-logs"
    hop = read(GOOD.replace("TUMBLE(ts, ", "HOP(ts, INTERVAL '15' MINUTE, ")).settings
    assert hop == {**read(GOOD).settings, "window.rolling": True}
    zoned = GOOD.replace("'1' DAY)", "'1' DAY, 'Europe/Berlin')")
    hop = read(zoned.replace("TUMBLE(ts, ", "HOP(ts, INTERVAL '15' MINUTE, ")).settings
    assert hop == {**read(zoned).settings, "window.rolling": True}
    assert read(GOOD.replace("TUMBLE(ts", 'TUMBLE("ROWTIME"')).settings["input.time"] == "ROWTIME"  # a field, quoted


def unit(text: str) -> Any:
    return read(GOOD.replace("= user_id", f"= {text}")).settings["input.user"]


@pytest.mark.parametrize(
    ("text", "user"),
    [
        ("who.id", "who.id"),
        ("(tenant, id)", ["tenant", "id"]),
        ("( tenant, lower(id) )", ["tenant", {"expression": "lower(id)"}]),
        ("coalesce(user_id,  anonymous_id)", {"expression": "coalesce(user_id, anonymous_id)"}),
        ("(lower(id))", {"expression": "(lower(id))"}),
        ("(a || b) || c", {"expression": "(a || b) || c"}),
        ("$key", "$key"),
        ("$key.customer.id", "$key.customer.id"),
        ("$headers['user-id']", "$headers.user-id"),
        ('$headers."user.id"', r"$headers.user\.id"),
        ("$headers[x]", {"expression": "$headers[x]"}),
        ("hex($headers.id)", {"expression": "hex($headers.id)"}),
        ('"$key"', r"\$key"),
        ('"$type".id', r"\$type.id"),
    ],
)
def test_the_privacy_unit(text: str, user: Any) -> None:
    assert unit(text) == user


@pytest.mark.parametrize("text", ["(tenant, id)", "coalesce(user_id, anonymous_id)", "$headers['user-id']", "$key"])
def test_a_privacy_unit_of_any_form_is_counted(text: str) -> None:
    found = read(GOOD.replace("= user_id", f"= {text}").replace("COUNT(*)", f"COUNT(DISTINCT {text})"))
    assert found.settings["columns"] == [{"name": "views", "kind": "users"}]


def test_the_event_time_may_be_computed() -> None:
    for text, time in [
        ("epoch_ms(ts::TIMESTAMP)", {"expression": "epoch_ms(ts::TIMESTAMP)"}),
        ("$headers.sent", "$headers.sent"),
        ("a.b", "a.b"),
    ]:
        assert read(GOOD.replace("TUMBLE(ts", f"TUMBLE({text}")).settings["input.time"] == time


@pytest.mark.parametrize(
    ("text", "each"),
    [
        ("web_logs CROSS JOIN UNNEST(items) AS item", [{"of": "items", "as": "item"}]),
        ("web_logs cross join unnest(items) item", [{"of": "items", "as": "item"}]),
        ('web_logs, UNNEST(cart."line items") AS item', [{"of": "cart.line items", "as": "item"}]),
        ("web_logs CROSS JOIN UNNEST($value)", [{"of": "$value"}]),
        (
            "web_logs CROSS JOIN UNNEST(string_split(tags, ',')) AS tag",
            [{"of": {"expression": "string_split(tags, ',')"}, "as": "tag"}],
        ),
        (
            "web_logs CROSS JOIN UNNEST(orders) AS o CROSS JOIN UNNEST(o.items) AS i",
            [{"of": "orders", "as": "o"}, {"of": "o.items", "as": "i"}],
        ),
    ],
)
def test_lists_in_records(text: str, each: list[Any]) -> None:
    found = read(GOOD.replace("web_logs", text)).settings
    assert (found["input.topic"], found["input.each"]) == ("web_logs", each)


def test_several_topics() -> None:
    found = read(GOOD.replace("web_logs", '"web-logs", app.logs CROSS JOIN UNNEST(items) AS item')).settings
    assert found["input.topics"] == ["web-logs", "app.logs"]
    assert "input.topic" not in found


@pytest.mark.parametrize(
    ("clauses", "settings"),
    [
        ("ORDER BY views LIMIT 3", {"order_by": "views", "order": "ascending", "limit": 3}),
        ("order by views asc limit 3", {"order_by": "views", "order": "ascending", "limit": 3}),
        (
            'HAVING views >= 100 AND "views" < -1.5 -- not 7\nORDER BY views DESC LIMIT 10',
            {"order_by": "views", "order": "descending", "limit": 10, "having": ["views >= 100", "views < -1.5"]},
        ),
    ],
)
def test_a_ranking(clauses: str, settings: dict[str, Any]) -> None:
    found = read(GOOD.replace(" EMIT", f" {clauses} EMIT"))
    assert {name: of for name, of in found.settings.items() if name.startswith("top.")} == {
        f"top.{name}": of for name, of in settings.items()
    }
    assert {f"top.{name}" for name in settings} <= found.places.keys()
    assert not any(name.startswith("top") for name in read(GOOD).settings)


WRONG = [
    # what to replace, by what, where the carets are, what the message says
    (GOOD, "", "", "there is no statement"),
    (GOOD, ";", ";", "there is no statement"),
    (GOOD, "SELECT 'a", "", "close every quote"),
    (GOOD, "INSERT INTO x", "INSERT", "a pipeline is a SELECT"),
    ("SELECT WITH", "WITH a AS (SELECT 1) SELECT WITH", "WITH", "no common table expressions"),
    (f"WITH DIFFERENTIAL_PRIVACY OPTIONS({OPTIONS}) ", "", "SELECT", "the privacy clause is missing"),
    (f"OPTIONS({OPTIONS}) ", "", "WITH DIFFERENTIAL_PRIVACY", "the options are missing"),
    (") url", ") ) url", ")", "this parenthesis closes nothing"),
    ("user_id)", "user_id", "(", "this parenthesis is not closed"),
    (") url", ") DISTINCT url", "DISTINCT", "leave DISTINCT out"),
    ("web_logs", "web_logs JOIN b USING (x)", "JOIN", "join the topics before"),
    (
        "web_logs",
        "web_logs LEFT JOIN countries ON a = b",
        "JOIN",
        "A public table is a file: write lookup('table.csv', key)",
    ),
    ("web_logs", "web_logs, b c", "b c", "one topic without an alias"),
    ("web_logs", "web_logs LEFT JOIN UNNEST(a) AS x", "JOIN", "join the topics before"),
    ("web_logs", "web_logs CROSS JOIN UNNEST(a, b) AS x", "UNNEST(a, b) AS x", "UNNEST takes one list"),
    ("web_logs", "web_logs CROSS JOIN UNNEST() AS x", "UNNEST() AS x", "UNNEST takes one list"),
    ("web_logs", "web_logs CROSS JOIN UNNEST AS x", "UNNEST AS x", "write CROSS JOIN UNNEST(list) AS item"),
    ("web_logs", "web_logs CROSS JOIN UNNEST(a) AS x(y)", "AS x(y)", "an item has one name"),
    ("web_logs", "web_logs CROSS JOIN UNNEST(line-items) AS x", "line-items", 'write "line-items" in double quotes'),
    ("web_logs", "web_logs, UNNEST(a) x y", "x y", "an item has one name"),
    ("web_logs", "CROSS JOIN UNNEST(a) AS x", "", "write one topic without an alias"),
    ("web_logs", "web_logs w", "web_logs w", "one topic without an alias"),
    ("web_logs", "(SELECT 1)", "SELECT", "a query inside a query"),
    ("status = 200", "url IN (SELECT url FROM b)", "SELECT", "a query inside a query"),
    (" EMIT", " HAVING views > 3 EMIT", "views > 3", "write HAVING n >= 100 ORDER BY n DESC LIMIT 10"),
    (" EMIT", " ORDER BY views EMIT", "views", "a ranking has a length; write HAVING"),
    (" EMIT", " LIMIT 10 EMIT", "10", "by which column is a row the first?"),
    (
        " EMIT",
        " HAVING COUNT(*) > 3 ORDER BY views LIMIT 1 EMIT",
        "COUNT(*)",
        "by its name behind AS: views; keys and records",
    ),
    (" EMIT", " HAVING url > 3 ORDER BY views LIMIT 1 EMIT", "url", "only a published column can be named here"),
    (" EMIT", " HAVING views > 3 OR views < 1 ORDER BY views LIMIT 1 EMIT", "OR", "join comparisons by AND"),
    (" EMIT", " HAVING views BETWEEN 1 AND 2 ORDER BY views LIMIT 1 EMIT", "BETWEEN", "join comparisons by AND"),
    (" EMIT", " HAVING views = 3 ORDER BY views LIMIT 1 EMIT", "views = 3", "one of >=, >, <=, <"),
    (" EMIT", " HAVING views > url ORDER BY views LIMIT 1 EMIT", "url", "write a number here"),
    (" EMIT", " HAVING views > 3 AND ORDER BY views LIMIT 1 EMIT", "", "write a published column"),
    (" EMIT", " ORDER BY 2 LIMIT 1 EMIT", "2", "only a published column can be named here"),
    (" EMIT", " ORDER BY views, url LIMIT 1 EMIT", "url", "one column decides"),
    (" EMIT", " ORDER BY views DESC NULLS LAST LIMIT 1 EMIT", "DESC NULLS LAST", "write ORDER BY column"),
    (" EMIT", " ORDER BY views LIMIT 1 OFFSET 3 EMIT", "1 OFFSET 3", "write a number here"),
    (" EMIT", " ORDER BY views LIMIT 1.5 EMIT", "1.5", "write a whole number here"),
    (" EMIT", " LIMIT 1 ORDER BY views EMIT", "ORDER BY", "ORDER BY comes too late"),
    ("MINUTE", "MINUTE; SELECT 1", "SELECT", "a second statement begins here"),
    ("MINUTE", "MINUTE UNION SELECT 1", "SELECT", "a query inside a query"),
    ("COUNT(*)", "COUNT(*) OVER (PARTITION BY url)", "OVER", "a window function sees other records"),
    ("COUNT(*) AS", "MAX(bytes) AS", "MAX", "there is no private MAX"),
    ("COUNT(*) AS", "COUNT(*) / 2 AS", "COUNT", "COUNT stands alone"),
    ("COUNT(*) AS", "COUNT(bytes) AS", "bytes", "records are counted, not values"),
    ("COUNT(*) AS", "COUNT(DISTINCT url) AS", "DISTINCT url", "write COUNT(DISTINCT user_id)"),
    ("COUNT(*) AS views", "COUNT(*)", "COUNT(*)", "the column needs a name; add AS name"),
    ("COUNT(*) AS views", "COUNT(*) AS a, COUNT(*) AS a", "COUNT(*)", "two columns are called a"),
    (", COUNT(*) AS views", "", "url", "no column is published"),
    ("url, COUNT", "*, COUNT", "*", "name each key and column"),
    ("url, COUNT", "url, , COUNT", "", "something is missing here"),
    ("url, COUNT", "lower(url), COUNT", "lower(url)", "a computed key needs a name"),
    ("url, COUNT", "lower(url) AS url, COUNT", "lower(url) AS url", "GROUP BY could mean both"),
    ("url, COUNT", "url, host, COUNT", "host", "selected and not grouped by"),
    ("GROUP BY url", "GROUP BY url, host", "host", "grouped by and not selected"),
    ("GROUP BY url, ", "GROUP BY ", "url", "this is selected and not grouped by"),
    ("TUMBLE(ts, INTERVAL '1' DAY)", "SESSION(ts)", "SESSION(ts)", "windows do not overlap"),
    ("TUMBLE(ts, INTERVAL '1' DAY)", "HOP(ts)", "HOP(ts)", "write HOP(time, INTERVAL '15' MINUTE, INTERVAL '1' DAY)"),
    (
        "TUMBLE(ts, INTERVAL '1' DAY)",
        "HOP(ts, INTERVAL '1' HOUR, INTERVAL '1' DAY)",
        "INTERVAL '1' HOUR",
        "would have sqrt(n) times the noise: 4.9 times for a day in hops of an hour",
    ),
    (
        "TUMBLE(ts,",
        "HOP(ts, INTERVAL '1' DAY), TUMBLE(ts,",
        "TUMBLE(ts, INTERVAL '1' DAY)",
        "there are two windows; leave one TUMBLE out",
    ),
    (", TUMBLE(ts, INTERVAL '1' DAY)", "", "url", "the window is missing"),
    (
        "TUMBLE(ts, INTERVAL '1' DAY)",
        "CUMULATE(ts, INTERVAL '1' HOUR, INTERVAL '1' DAY)",
        "EVERY INTERVAL '15' MINUTE",
        "CUMULATE names another step",
    ),
    (
        "TUMBLE(ts, INTERVAL '1' DAY)",
        "CUMULATE(ts, INTERVAL '1' DAY)",
        "CUMULATE(ts, INTERVAL '1' DAY)",
        "step, then size",
    ),
    ("INTERVAL '1' DAY", "INTERVAL '1' MONTH", "MONTH", "months and years differ in length"),
    (
        "INTERVAL '1' DAY",
        "INTERVAL '2' DAY, 'UTC'",
        "INTERVAL '2' DAY",
        "with a time zone, a window is INTERVAL '1' DAY",
    ),
    (
        "INTERVAL '1' DAY",
        "INTERVAL '24' HOUR, 'UTC'",
        "INTERVAL '24' HOUR",
        "with a time zone, a window is INTERVAL '1' DAY",
    ),
    ("INTERVAL '1' DAY", "INTERVAL '1.5' DAY", "'1.5'", "a whole number of units"),
    ("INTERVAL '1' DAY", "'1d'", "'1d'", "write it as INTERVAL '15' MINUTE"),
    ("'1' DAY", "'1' DAY, TIMESTAMP '2026-01-01'", "'2026-01-01'", 'append "Z" for UTC'),
    (" EMIT EVERY INTERVAL '15' MINUTE", "", "", "EMIT is missing"),
    ("EMIT EVERY", "EMIT", "INTERVAL '15' MINUTE", "write EMIT EVERY"),
    ("FROM web_logs WHERE status = 200\nGROUP BY", "GROUP BY", "", "FROM is missing"),
    ("epsilon = 6", "epsilom = 6", "epsilom", 'unknown option; did you mean "epsilon"?'),
    ("epsilon = 6", "kappa = 6", "kappa", "unknown option; known here: epsilon, delta"),
    ("epsilon = 6", "epsilon = 6, epsilon = 6", "epsilon", "epsilon is given twice"),
    ("epsilon = 6", "epsilon 6", "epsilon 6", "write epsilon = value"),
    ("epsilon = 6", "epsilon = 'six'", "'six'", "write a number here"),
    ("epsilon = 6, ", "", "delta = 1e-9, privacy_unit_column = user_id", "the option epsilon is missing"),
    ("= user_id", "=", "", "name a field here, or write an expression"),
    ("= user_id", "= (tenant, )", "", "name a field here, or write an expression"),
    ("= user_id", "= (tenant, user-id)", "user-id", 'write "user-id" in double quotes'),
    ("= user_id", "= $user", "$user", 'write "$user" in double quotes'),
    ("COUNT(*) AS", "COUNT(DISTINCT lower(user_id)) AS", "DISTINCT lower(user_id)", "write COUNT(DISTINCT user_id)"),
    ("= user_id", "= user_id, max_groups_contributed = 0", "max_groups_contributed = 0", "there is no guarantee"),
    ("= user_id", "= user_id, max_groups_contributed = NULL", "NULL", "write a number here"),
    ("= user_id", "= user_id, max_groups_contributed = 1.5", "1.5", "write a whole number"),
    (
        "= user_id",
        "= user_id, group_selection_strategy = LAPLACE_THRESHOLD",
        "group_selection_strategy = LAPLACE_THRESHOLD",
        "use PUBLIC_GROUPS",
    ),
    ("COUNT(*) AS", "SUM(bytes) AS", "bytes", "the value needs public bounds"),
    ("COUNT(*) AS", "SUM(bytes CLAMPED 1) AS", "CLAMPED", "the bounds are missing"),
    ("COUNT(*) AS", "SUM(bytes CLAMPED BETWEEN 5 AND 1) AS", "5 AND 1", "write the lower bound first"),
    ("COUNT(*) AS", "SUM(CLAMPED BETWEEN 0 AND 1) AS", "CLAMPED BETWEEN 0 AND 1", "the value is missing"),
    ("COUNT(*) AS", "VAR_SAMP(bytes) AS", "VAR_SAMP", "there is no private VAR_SAMP; use VAR_POP"),
    ("COUNT(*) AS", "COUNT(DISTINCT url) AS", "DISTINCT url", "depends on what all other users sent"),
    ("COUNT(*) AS", "SUM(DISTINCT bytes) AS", "DISTINCT", "is not possible"),
    ("COUNT(*) AS", "SUM(bytes, 5) AS", "5", "SUM takes one value and its bounds"),
    ("= user_id", "= user-id", "user-id", 'for a field of that name write "user-id" in double quotes'),
    ("= user_id", "= who.user-id", "who.user-id", 'write who."user-id" in double quotes'),
    ("= user_id", "= 'user_id'", "'user_id'", 'write "user_id" in double quotes; single quotes are for texts'),
    ("= user_id", "= `user_id`", "", 'write "user_id" in double quotes; there are no backticks'),
    (
        ") url,",
        ") event-type,",
        "event-type",
        'for a field of that name write "event-type" in double quotes; a computed key',
    ),
    (") url,", ") @version,", "@version", 'for a field of that name write "@version" in double quotes; a computed key'),
    (") url,", ") Url,", "url", "Url and url are different fields, because upper and lower case matter"),
    ("TUMBLE(ts,", "TUMBLE(event-time,", "event-time", 'write "event-time" in double quotes, or ROWTIME'),
    ("TUMBLE(ts,", "TUMBLE(@timestamp,", "@timestamp", 'write "@timestamp" in double quotes, or ROWTIME'),
]


@pytest.mark.parametrize(("old", "new", "marked", "says"), WRONG)
def test_what_is_wrong_is_shown_with_its_place(old: str, new: str, marked: str, says: str) -> None:
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    with pytest.raises(ConfigurationError) as caught:
        read(text)
    message, *picture = str(caught.value).split("\n")
    assert message.startswith("p.sql:")
    assert says in message
    if not picture:  # there is no place in an empty text, and none where the tokenizer fails
        assert marked == ""
        return
    line, carets = picture
    place = carets.index("^")
    if marked:
        assert line[place : place + carets.count("^")] == marked
    _, row, at, _ = message.split(":", 3)
    assert text.split("\n")[int(row) - 1][int(at) - 1 :].startswith(marked)


def test_the_bounds_of_a_sum_per_user_need_one_row_per_group() -> None:
    text = GOOD.replace("COUNT(*)", "SUM(bytes, contribution_bounds_per_group => (0, 7))")
    with pytest.raises(ConfigurationError, match="only each row is bounded; write CLAMPED BETWEEN"):
        read(text.replace(OPTIONS, f"{OPTIONS}, max_rows_per_group = 2"))
    assert read(text).settings["bounds.max_records_per_key"] == 1  # so that no other file says otherwise


def test_a_long_line_is_cut_around_the_place() -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(GOOD.replace("status = 200", f"status IN ({', '.join(['200'] * 60)}) JOIN"))
    line, carets = str(caught.value).split("\n")[1:]
    assert len(line) <= 70
    assert line[carets.index("^") :].startswith("JOIN")


WORDS = GOOD.split()
SIGNS = st.sampled_from(list("( ) , . = ; + - * / ' \" ` $ ? : [ ] { } # @ % | \\ \n \x00 é 𝄞"))
PARTS = st.sampled_from(
    (
        *WORDS, "SUM (", "AVG (", "DISTINCT", "CLAMPED BETWEEN", "AND", "1e999", "0x1", "TIMESTAMP", "NULL", "CASE", "END", "--",
        "/*", "*/", "{{", "{%", "$1", "::", "=>", "HAVING", "contribution_bounds_per_group", "INTERVAL '1' DAY",
    )
)  # fmt: skip
PIECES = PARTS | SIGNS


@given(st.lists(PIECES, max_size=40).map(" ".join) | st.text(max_size=80))
def test_no_text_raises_anything_else(text: str) -> None:
    with contextlib.suppress(ConfigurationError):
        read(text)


@given(st.integers(0, len(WORDS)), st.integers(0, 6), st.lists(PIECES, max_size=5))
def test_no_broken_statement_raises_anything_else(at: int, length: int, pieces: list[str]) -> None:
    with contextlib.suppress(ConfigurationError):
        read(" ".join([*WORDS[:at], *pieces, *WORDS[at + length :]]))
