"""One pipeline as a statement and as TOML: the same settings and digest, and no two answers to one question."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from susurrus.agents.cli.explain import toml
from susurrus.agents.cli.main import app
from susurrus.agents.histogram.settings import HistogramSettings
from susurrus.agents.pipelines import load_settings, pipeline_of, settings_from, tables_of
from susurrus.agents.sql.source import StatementText
from susurrus.agents.sql.statement import statement
from susurrus.agents.sql.tables import joined
from susurrus.mechanisms.errors import ConfigurationError
from tests.agents.sql.test_statement import GOOD

QUOTED = ("as", "case", "desc", "do", "else", "end", "except")
"""Words that a field's name must not be without quotes."""
NAMES = st.from_regex(r"\A[a-e][a-z_]{0,5}\Z").filter(lambda name: name not in QUOTED)
KEYS = st.lists(NAMES, min_size=1, max_size=3, unique=True)
UNITS = {"MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000}


USERS: dict[str, Any] = {
    "who": "who", "who.id": "who.id", '"user-id"': "user-id", "$key": "$key", "$headers['user-id']": "$headers.user-id",
    "(tenant, id)": ["tenant", "id"], "coalesce(x,  y)": {"expression": "coalesce(x,y)"}, '"$who"': r"\$who",
    "(tenant, lower(id))": ["tenant", {"expression": "lower( id )"}], "md5($headers.id)": {"expression": "MD5($headers['id'])"},
}  # fmt: skip
TIMES: dict[str, Any] = {
    "ROWTIME": "kafka",
    "seen": "seen",
    "epoch_ms(seen::TIMESTAMP)": {"expression": "epoch_ms(CAST(seen AS timestamp))"},
}
LISTS: dict[str, Any] = {
    "": [],
    "CROSS JOIN UNNEST(items) AS item": {"of": "items", "as": "item"},
    ", UNNEST(orders) AS o CROSS JOIN UNNEST(o.items) AS i": [
        {"of": "orders", "as": "o"},
        {"of": "o.items", "as": "i"},
    ],
    "CROSS JOIN UNNEST(string_split(tags,',')) AS t": [{"of": {"expression": "string_split(tags, ',')"}, "as": "t"}],
}


FUNCTIONS = {"sum": "SUM", "mean": "AVG", "variance": "VAR_POP", "stddev": "STDDEV_POP"}


@st.composite
def pairs(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A statement, and the TOML file's tables that someone else would write for it."""
    keys, (user, unit_of), computed = draw(KEYS), draw(st.sampled_from(sorted(USERS.items()))), draw(st.booleans())
    times, listed = draw(st.sampled_from(sorted(TIMES))), draw(st.sampled_from(sorted(LISTS)))
    unit, triggers = draw(st.sampled_from(sorted(UNITS))), draw(st.integers(1, 60))
    epsilon, delta = draw(st.floats(0.01, 50)), draw(st.floats(1e-12, 0.01))
    select, group, key, columns, published = list(keys), list(keys), list[Any](keys), [], []
    if computed:
        select.append("split_part(url, '?', 1) AS path -- the page")
        group.append("path")
        key.append({"name": "path", "expression": "split_part(url,'?',1)"})
    for index, kind in enumerate(
        draw(st.lists(st.sampled_from(("count", "users", *FUNCTIONS)), min_size=1, max_size=4))
    ):
        name, bound, low = f"c{index}", draw(st.integers(1, 10**6)), draw(st.none() | st.just(0))
        table: dict[str, Any] = {"name": name, "kind": kind}
        if kind in FUNCTIONS:
            value = draw(st.sampled_from(("bytes", "bytes / 1000")))
            table |= {"field" if value == "bytes" else "expression": value, "bound": bound}
            if low is not None:
                table["lower"] = low
            function = FUNCTIONS[kind]
            columns.append(
                f"{function}({value} CLAMPED BETWEEN {-bound if low is None else low} AND {bound}) AS {name}"
            )
        else:
            columns.append(f"{'COUNT(*)' if kind == 'count' else f'COUNT(DISTINCT {user})'} AS {name}")
        published.append(table)
    bounds: dict[str, Any] = {}
    options = [f"epsilon = {epsilon!r}", f"delta = {delta!r}", f"privacy_unit_column = {user}"]
    if groups := draw(st.none() | st.integers(1, 100)):
        options.append(f"max_groups_contributed = {groups}")
        bounds["max_records_per_user"] = groups
    memory: dict[str, Any] = {}
    if triggers > 1 and any(
        table["kind"] in ("count", "users") for table in published
    ):  # so strategy closing is the default
        memory = draw(
            st.fixed_dictionaries(
                {}, optional={"remember": st.integers(0, 20), "evidence_windows": st.sampled_from((1, 2, 4))}
            )
        )
        options += [f"{name} = {value}" for name, value in memory.items()]
    where = draw(st.sampled_from(("", "status=200", "status IN (200, 304) AND NOT bot")))
    text = (
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS({', '.join(options)})\n{', '.join(columns)}\n"  # keys may come later
        + "".join(f", {item}\n" for item in select)
        + f"FROM web-logs {listed} {f'WHERE {where}' if where else ''}\n"
        f"GROUP BY {', '.join(group)}, TUMBLE({times}, INTERVAL {triggers} {unit}) EMIT EVERY INTERVAL '1' {unit}"
    )
    tables = {
        "pipeline": {"name": "p"},
        "input": {
            "topic": "web-logs",
            "user": unit_of,
            "key": key,
            "time": TIMES[times],
            **({"where": where} if where else {}),
            **({"each": LISTS[listed]} if listed else {}),
        },
        "window": {"length": triggers * UNITS[unit], "trigger_every": UNITS[unit]},
        "bounds": bounds,
        "columns": published,
        "keys": memory,
        "privacy": {"epsilon": epsilon, "delta": delta},
    }
    return text, tables


@given(pairs())
@settings(max_examples=30, deadline=None)
def test_both_forms_are_one_pipeline(pair: tuple[str, dict[str, Any]]) -> None:
    text, tables = pair
    data = joined(statement(StatementText("p.sql", text)), {}, name="p", config=None, environ={})
    found, other = settings_from(data, environ={}), settings_from(tables, environ={})
    assert found.config_digest() == other.config_digest()
    # What explain prints is the same again, field for field.
    assert settings_from(tomllib.loads(toml(data)), environ={}) == found


def files(tmp_path: Path, common: str = "", sql: str = GOOD) -> tuple[Path, Path]:
    config, statement = tmp_path / "common.toml", tmp_path / "page-views.sql"
    config.write_text(common, encoding="utf-8")
    statement.write_text(sql, encoding="utf-8")
    return config, statement


def test_the_file_says_how_it_runs_and_the_statement_what(tmp_path: Path) -> None:
    config, sql = files(tmp_path, '[kafka]\nbootstrap_servers = "b:1"\n[privacy]\nsecret_file = "secret"\n')
    found = load_settings(config, {"SUSURRUS__PIPELINE__PREFIX": "team"}, sql=sql)
    assert found.kafka.bootstrap_servers == "b:1"
    assert found.application == "team.page-views"  # the file's stem
    assert found.input.topic == "web_logs"
    assert load_settings(None, {"SUSURRUS__PIPELINE__NAME": "other"}, sql=sql).pipeline.name == "other"


@pytest.mark.parametrize(
    ("common", "environ"),
    [
        ("[privacy]\nepsilon = 6.0\n[window]\nlength = '24h'", {}),
        ("", {"SUSURRUS__PRIVACY__EPSILON": "6", "SUSURRUS__WINDOW__LENGTH": "24h"}),
    ],
)
def test_what_both_say_alike_is_fine(tmp_path: Path, common: str, environ: dict[str, str]) -> None:
    config, sql = files(tmp_path, common)
    alone = load_settings(None, {}, sql=sql)
    assert load_settings(config, environ, sql=sql).config_digest() == alone.config_digest()


@pytest.mark.parametrize(
    ("common", "environ", "says"),
    [
        (
            "[privacy]\nepsilon = 5",
            {},
            "privacy.epsilon: given in page-views.sql:1:42 and in common.toml: 6 there and 5 in common.toml; keep one of them",
        ),
        (
            "",
            {"SUSURRUS__PRIVACY__EPSILON": "5"},
            "privacy.epsilon: given in page-views.sql:1:42 and in SUSURRUS__PRIVACY__EPSILON: 6 there and 5",
        ),
        ("[[columns]]\nname = 'a'", {}, "columns: given in page-views.sql:1:100 and in common.toml: another value"),
        ("[pipeline]\nkind = 'stream'", {}, 'pipeline.kind: a statement is a pipeline of kind "histogram"'),
        ("input = 5", {}, "input: write a section"),
    ],
)
def test_what_both_say_differently_names_both(tmp_path: Path, common: str, environ: dict[str, str], says: str) -> None:
    config, sql = files(tmp_path, common)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(config, environ, sql=sql)
    assert says in str(caught.value)


def test_windows_that_remember_nothing_have_another_digest(tmp_path: Path) -> None:
    digests, remembered = set(), []
    for more in ("", ", remember = 0", ", remember = 6", ", evidence_windows = 4"):
        _, sql = files(tmp_path, sql=GOOD.replace("delta = 1e-9", f"delta = 1e-9{more}"))
        found = HistogramSettings.of(load_settings(None, {}, sql=sql))
        digests.add(found.config_digest())
        remembered.append((found.remember, found.evidence_windows))
    assert remembered == [(6, 1), (0, 1), (6, 1), (6, 4)]
    assert len(digests) == 3  # the default, written down, is no other pipeline


@pytest.mark.parametrize(
    ("before", "option", "says"),
    [
        ("", "remember = -1", "keys.remember = -1: must be greater than or equal to 0"),
        ("", "evidence_windows = 3", "keys.evidence_windows = 3: use 1, 2 or 4"),
        ("strategy = toeplitz, ", "remember = 6", "keys.remember: has no meaning for privacy.strategy"),
    ],
)
def test_a_wrong_word_about_memory_is_shown_in_the_statement(
    tmp_path: Path, before: str, option: str, says: str
) -> None:
    text = GOOD.replace("= user_id", f"= user_id, {before}{option}")
    _, sql = files(tmp_path, sql=text)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(None, {}, sql=sql)
    assert says in str(caught.value)
    assert f"| page-views.sql:1:{text.index(option) + 1}\n" in str(caught.value)


def test_a_wrong_value_is_shown_in_the_statement(tmp_path: Path) -> None:
    config, sql = files(tmp_path, sql=GOOD.replace("epsilon = 6", "epsilon = 600").replace("status = 200", "now() > 1"))
    with pytest.raises(ConfigurationError) as caught:
        load_settings(config, {}, sql=sql)
    text = str(caught.value)
    assert "\n    " not in text  # which the command line would print as commands
    assert "privacy.epsilon = 600: must be less than or equal to 100" in text
    assert "| page-views.sql:1:42" in text
    assert "now is not available" in text
    assert "| page-views.sql:2:21" in text


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("status = 200", "status = 200 /* good */ AND  random() < 1", "2:50"),
        ("COUNT(*)", "SUM(bytes + random() CLAMPED BETWEEN 0 AND 1)", "1:117"),
        ("url, COUNT(*) AS views", "url || now() AS u, COUNT(*) AS views", "1:107"),
        ("= user_id", "= coalesce(user_id, random()::TEXT)", "1:109"),
        ("= user_id", "= (tenant, user_id || random())", "1:111"),
        ("TUMBLE(ts", "TUMBLE(epoch_ms(ts::TIMESTAMP) + random()", "3:48"),
        ("web_logs", "web_logs CROSS JOIN UNNEST(string_split(a || random(), ',')) AS tag", "2:51"),
    ],
)
def test_the_place_inside_an_expression_is_shown(tmp_path: Path, old: str, new: str, place: str) -> None:
    text = GOOD.replace(old, new)
    _, sql = files(tmp_path, sql=text.replace("GROUP BY url", "GROUP BY u") if " AS u," in new else text)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(None, {}, sql=sql)
    assert f"| page-views.sql:{place}\n" in str(caught.value)
    line, carets = str(caught.value).split("\n")[-2:]
    assert line[carets.index("^") :].startswith(("random", "now"))


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no such file; give the path of a file with one SELECT"):
        tables_of(None, {}, sql=tmp_path / "none.sql")


def test_explain_prints_the_toml_that_is_the_same_pipeline(tmp_path: Path) -> None:
    common = '[kafka]\nbootstrap_servers = "b:1"\n[kafka.properties]\n"ssl.key.password" = "hunter2"\n"ssl.ca.pem" = {env = "X"}\n'
    config, sql = files(tmp_path, common)
    runner = CliRunner(env={"COLUMNS": "100", "TERM": "dumb"})
    result = runner.invoke(app, ["explain", "--sql", str(sql), "--config", str(config)])
    assert result.exit_code == 0, result.output
    assert "hunter2" not in result.stdout
    said = " ".join(result.stdout.split())
    for phrase in (
        "a user, as the field user_id names it, in one window of 1d",
        "other records are left out",
        "every 15m, for the window of 1d so far (96 triggers)",
    ):
        assert phrase in said
    costs = [
        text for name, text in pipeline_of(load_settings(None, {}, sql=sql)).summary() if name in ("noise", "new keys")
    ]
    assert len(costs) == 2  # the standard error of the one column, and the smallest key with a fair chance
    assert all(text in said for text in costs)
    only = runner.invoke(app, ["explain", "--toml", "--sql", str(sql), "--config", str(config)]).stdout
    assert result.stdout.endswith(only)
    assert '# not shown, it may hold a password: kafka.properties."ssl.key.password"' in only
    again = tmp_path / "again.toml"
    again.write_text(only, encoding="utf-8")
    environ = {"X": "y"}
    assert load_settings(again, environ).config_digest() == load_settings(config, environ, sql=sql).config_digest()


def test_toml_shows_no_password_of_a_registry() -> None:
    properties = {"basic.auth.user.info": "me:hunter2", "ssl.key.password": {"env": "X"}}
    for section in ("input", "output"):
        shown = toml({section: {"registry": {"url": "http://hunter2", "properties": properties}}})
        assert "hunter2" not in shown
        assert f'# not shown, it may hold a password: {section}.registry.properties."basic.auth.user.info"' in shown
        assert 'env = "X"' in shown


def test_config_check_takes_a_statement(tmp_path: Path) -> None:
    config, sql = files(tmp_path)
    runner = CliRunner(env={"COLUMNS": "100", "TERM": "dumb"})
    result = runner.invoke(app, ["config", "check", "--sql", str(sql)])
    assert result.exit_code == 0, result.output
    digest = load_settings(None, {}, sql=sql).config_digest().hex()[:16]
    assert digest in result.stdout
    both = runner.invoke(app, ["config", "check", str(config), "--config", str(config)])
    assert both.exit_code == 2
