"""The configuration: what is understood, what is refused and in which words, what the digest covers."""

import json
import os
import re
import ssl
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from susurrus.agents.config import kafka_properties, secrets
from susurrus.agents.config.sections import KafkaSettings
from susurrus.agents.config.settings import DIGEST_VERSION, Settings
from susurrus.agents.finding import Finding
from susurrus.agents.local.settings import LocalSettings
from susurrus.agents.pipelines import KINDS, load_settings, pipeline_of, settings_from
from susurrus.agents.runtime.faust.connection import for_aiokafka, for_faust
from susurrus.agents.types.durations import format_duration, parse_duration, parse_instant
from susurrus.agents.types.section import Section
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram import closing_parameters
from susurrus.mechanisms.histogram.registry import build_strategy
from susurrus.topics.records.payloads import JsonReader
from susurrus.topics.records.raw import RawDecoder
from susurrus.topics.records.zones import Zone
from tests.reference import NO_LAST_LOOK

DAY = 86_400_000
MINIMAL = """
[pipeline]
name = "page-views"
[input]
topic = "web-requests"
user = "host"
key = ["url"]
[privacy]
epsilon = 6.0
delta = 1e-9
"""


def load(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> Settings:
    path = tmp_path / "susurrus.toml"
    path.write_text(text, encoding="utf-8")
    return load_settings(path, environ or {})


def problems(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, text, environ)
    return str(caught.value).splitlines()


def changed(**sections: dict[str, Any]) -> Settings:
    data: dict[str, dict[str, Any]] = {
        "pipeline": {"name": "page-views"},
        "input": {"topic": "web-requests", "user": "host", "key": ["url"]},
        "privacy": {"epsilon": 6.0, "delta": 1e-9},
    }
    for name, fields in sections.items():
        data[name] = {**data.get(name, {}), **fields} if isinstance(fields, dict) else fields
    return settings_from(data, environ={})


class TestDefaults:
    def test_four_sections_are_enough_and_durations_are_milliseconds(self, tmp_path: Path) -> None:
        settings = load(tmp_path, MINIMAL)
        assert settings.window.length == DAY
        assert settings.window.trigger_every == 900_000
        assert settings.triggers == 96
        assert settings.topic("histogram") == "susurrus.page-views.histogram"
        assert [(c.name, c.kind, c.bound) for c in settings.measured_columns] == [("count", "count", 1)]

    def test_settings_are_frozen(self, tmp_path: Path) -> None:
        settings = load(tmp_path, MINIMAL)
        with pytest.raises(ValueError, match="frozen"):
            settings.window.length = 1

    def test_late_triggers_count(self) -> None:
        assert changed(window={"allowed_lateness": "20m"}).triggers == 98

    def test_every_field_of_every_section_is_documented(self) -> None:
        sections = [Settings, *Section.__subclasses__()]
        sections += [more for section in sections for more in section.__subclasses__()]
        assert "ClosingSettings" in {section.__name__ for section in sections}
        for section in sections:
            for name, field in section.model_fields.items():
                assert field.description, f"{section.__name__}.{name}"


class TestDurations:
    @pytest.mark.parametrize(
        ("text", "milliseconds"),
        [("500ms", 500), ("15m", 900_000), ("1d", DAY), ("1h 30m", 5_400_000), ("1h30m", 5_400_000), ("0s", 0), (7, 7)],
    )
    def test_understood(self, text: str | int, milliseconds: int) -> None:
        assert parse_duration(text) == milliseconds

    @pytest.mark.parametrize("text", ["", "15", "15 minutes", "-1s", "1.5h", "m", True, 1.0, None, -1, "1h x"])
    def test_refused(self, text: Any) -> None:
        with pytest.raises(ValueError, match=r'for example|write "15ms"'):
            parse_duration(text)

    @given(st.integers(0, 10**12))
    def test_format_reads_back(self, milliseconds: int) -> None:
        assert parse_duration(format_duration(milliseconds)) == milliseconds

    @pytest.mark.parametrize(
        ("text", "milliseconds"),
        [("1970-01-02T00:00:00Z", DAY), ("1970-01-02T01:00:00.001+01:00", DAY + 1), ("1969-12-31T23:59:59Z", -1000)],
    )
    def test_instants(self, text: str, milliseconds: int) -> None:
        assert parse_instant(text) == milliseconds

    def test_an_instant_without_an_offset_is_not_guessed(self) -> None:
        with pytest.raises(ValueError, match="append"):
            parse_instant("2026-01-31T00:00:00")

    def test_toml_dates_are_instants(self, tmp_path: Path) -> None:
        settings = load(tmp_path, MINIMAL + "[start]\nfirst_window = 1970-01-03\nfrom = 1970-01-03T00:00:00Z\n")
        assert settings.start.first_window == 2 * DAY
        assert settings.start.from_ == 2 * DAY


class TestErrorsNameTheFieldAndTheFix:
    @pytest.mark.parametrize(
        ("edit", "line"),
        [
            ("[window]\nlenght = '1d'", 'window.lenght: unknown field; did you mean "length"?'),
            ("[widow]\nlength = '1d'", 'widow: unknown field; did you mean "window"?'),
            ("[start]\nfrm = 'latest'", 'start.frm: unknown field; did you mean "from"?'),
            ("[window]\nlength = '2 days'", 'window.length = "2 days": write a duration'),
            ("[window]\nlength = '1 year'", 'with a window.time_zone, one of "1 day", "1 week", "1 month"'),
            ("[window]\nlength = '1 day'", 'window.time_zone: is missing; with window.length = "1 day"'),
            ("[window]\nlength = '1 day'", 'or write length = "1d"'),
            ("[window]\nlength = '0s'", "window.length"),
            ("[window]\nlength = '1 day'\ntime_zone = 'Europe/Berln'", 'window.time_zone = "Europe/Berln"'),
            (
                "[window]\nlength = '7d'\ntime_zone = 'UTC'",
                'window.time_zone = "UTC": has no meaning with window.length = "7d", which is as long every time; write length = '
                '"1 week"',
            ),
            (
                "[window]\nlength = '1 day'\ntime_zone = 'Europe/Berlin'\ntrigger_every = '1d'",
                'window.trigger_every = "1d": a window that is 1 day in Europe/Berlin must begin at a trigger, also after clocks '
                'have changed; use "1h"',
            ),
            (
                "[window]\nlength = '1 day'\ntime_zone = 'Australia/Lord_Howe'\ntrigger_every = '1h'",
                'use "30m"',
            ),
            (
                "[window]\nlength = '1 month'\ntime_zone = 'Europe/Berlin'",
                'window.trigger_every: makes triggers=2980 per window; use at most 2048, for example trigger_every = "30m"',
            ),
            (
                "[window]\nlength = '1 day'\ntime_zone = 'Europe/Berlin'\norigin = 1970-01-01T01:00:00Z",
                "window.origin: has no meaning",
            ),
            (
                "[window]\nlength = '1 day'\ntime_zone = 'Europe/Berlin'\n[start]\nfirst_window = 2026-10-25T00:00:00Z",
                'start.first_window = "2026-10-25T02:00:00+02:00": is not the start of a window; use "2026-10-25T00:00:00+02:00"',
            ),
            (
                "[window]\ntrigger_every = '7h'",
                'window.trigger_every = "7h": must divide window.length = "1d"; use "6h"',
            ),
            ("[window]\ntrigger_every = '7ms'", "divide"),
            ("[start]\nfrom = 'yesterday'", 'start.from = "yesterday": write an instant'),
            ("[start]\nfrom = 'earliest'", "start.first_window: is missing"),
            (
                "[start]\nfrom = 1970-01-03T00:00:00Z\n[clock]\nkind = 'producer'",
                'start.from = "1970-01-03T00:00:00Z": is looked up by time stamps, and producers choose these',
            ),
            ("[clock]\nkind = 'replay'", "start.first_window: is missing"),
            ("[clock]\nkind = 'wall'", "clock.kind = \"wall\": use 'broker', 'producer' or 'replay'"),
            (
                "[start]\nfirst_window = '1995-08-01T03:00:00Z'",
                'start.first_window = "1995-08-01T03:00:00Z": is not the start of a window; use "1995-08-01T00:00:00Z"',
            ),
            (
                "[bounds]\nmax_records_per_user = 2\nmax_records_per_key = 3",
                "bounds.max_records_per_key = 3: more than",
            ),
            (
                "[bounds]\nmax_records_per_user = 0",
                "bounds.max_records_per_user = 0: must be greater than or equal to 1",
            ),
            ("[keys]\ndiscover = false", "keys.discover = false: nothing would be published; declare keys"),
            (
                "[keys]\ndeclared = [['a', 'b']]",
                "keys.declared: every key needs as many parts as input.key, which has 1",
            ),
            ("[keys]\ndeclared = [{a = 1}]", "write each key as a JSON scalar"),
            ("[keys]\ndeclared = ['a']\nproduct = {url = ['b']}", "keys.product: there is keys.declared too; keep one"),
            (
                "[keys]\nproduct = {url = ['a'], device = ['b']}",
                'keys.product: names "url", "device"; give values for each part of input.key: "url"',
            ),
            (
                "[keys]\nproduct = {url = []}",
                "keys.product.url: has no values, so there would be no keys; list at least one",
            ),
            ("[keys]\nproduct = {url = [['a']]}", "keys.product.url, number 1: write each value as a JSON scalar"),
            ("[keys]\nproduct = {url = 'a'}", "keys.product.url: write a list in brackets"),
            (
                f"[keys]\nproduct = {{url = {list(range(20_001))}}}",
                "keys.product: makes 20,001 keys, and at most 20,000 are possible; list those that can occur",
            ),
            (
                '[budget]\nepsilon = 6\ndelta = 1e-9\nper = "23h"',
                'budget.per = "23h": is shorter than window.length = "1d"; use at least "1d"',
            ),
            (
                "[budget]\nepsilon = 1\ndelta = 1e-9",
                "budget.epsilon = 1: less than one window's privacy.epsilon = 6; raise",
            ),
            (
                "[topics]\nreplication_factor = 1",
                "topics.min_insync_replicas = 2: more than topics.replication_factor = 1",
            ),
            ("[topics]\nmin_insync_replicas = 1", "topics.min_insync_replicas = 1: one disk could lose"),
            ("[[columns]]\nname = 'a'\nkind = 'sum'", 'column 1 ("a"): field is missing; kind = "sum" needs it'),
            ("[[columns]]\nname = 'a'\nfield = 'x'", 'column 1 ("a"): field has no meaning for kind = "count"'),
            ("[[columns]]\nname = 'a'\n[[columns]]\nname = 'a'", 'columns: two are called "a"; rename one'),
            (
                "[[columns]]\nname = 'a'\nkind = 'sum'\nfield = 'x'\nbound = 1\ngrid = 2",
                'column 1 ("a"): grid = 2 against bound = 1; use',
            ),
            (
                "[[columns]]\nname = 'a'\nkind = 'sum'\nfield = 'x'\nbound = 1\ngrid = 6e-8\n"
                "[bounds]\nmax_records_per_user = 1000",
                'column 1 ("a"): sums could leave 64 bits',
            ),
            (
                "[kafka.properties]\n'group.id' = 'x'",
                'kafka.properties."group.id": leave it out; Susurrus names its own',
            ),
            (
                "[kafka.properties]\n'group.instance.id' = 'x'",
                'kafka.properties."group.instance.id": leave it out; set worker.instance instead',
            ),
            ("[worker]\ninstance = 'web 0'", 'worker.instance = "web 0": '),
            ("[worker]\ninstance = '..'", 'worker.instance = "..": '),
            ("[worker]\ninstance = ''", 'worker.instance = "": '),
            (f"[worker]\ninstance = '{'x' * 201}'", "worker.instance = "),
            (
                "[kafka.properties]\nsecurity.protocol = 'TLS'",
                'kafka.properties."security.protocol" = "TLS": use one of',
            ),
            ("[kafka.properties]\nsecurity.protocol = 'SASL_SSL'\nsasl.mechanism = 'PLAIN'", "sasl.username"),
            ("[input.registry]\nurl = 'http://r:8081'", 'input.registry: has no meaning for input.format = "json"'),
            ("[input.registry]\nurl = 'http://me:hunter2@r:8081'", "input.registry.url: write http://host:port"),
            ("[stream]\nbound = 1\nepsilon = 1\n[pipeline]", "not valid TOML"),
        ],
    )
    def test_message(self, tmp_path: Path, edit: str, line: str) -> None:
        assert any(line in problem for problem in problems(tmp_path, MINIMAL + edit)), problems(
            tmp_path, MINIMAL + edit
        )

    def test_all_problems_at_once_without_repetition(self, tmp_path: Path) -> None:
        found = problems(
            tmp_path, '[pipeline]\nname = "a b"\n[input]\ntopik = "x"\n[privacy]\nepsilon = -1\ndelta = 2\n'
        )
        assert len(found) == len(set(found)) == 4
        assert [line.split(":")[0].split(" =")[0] for line in found] == [
            "pipeline.name",
            "input.topik",
            "privacy.epsilon",
            "privacy.delta",
        ]

    @pytest.mark.parametrize(
        ("field", "value"), [("epsilon", "nan"), ("epsilon", "inf"), ("epsilon", "0"), ("delta", "0")]
    )
    def test_a_promise_must_be_a_promise(self, tmp_path: Path, field: str, value: str) -> None:
        text = MINIMAL.replace(f"{field} = {'6.0' if field == 'epsilon' else '1e-9'}", f"{field} = {value}")
        assert f"privacy.{field}" in problems(tmp_path, text)[0]

    def test_the_promise_is_required(self, tmp_path: Path) -> None:
        assert problems(tmp_path, MINIMAL.split("[privacy]")[0])[0].startswith(
            "privacy: is missing; add it, for example [privacy] eps"
        )

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="no such file"):
            load_settings(tmp_path / "none.toml", {})

    def test_other_kinds_state_their_promise_in_their_own_section(self, tmp_path: Path) -> None:
        text = MINIMAL.replace('name = "page-views"', 'name = "p"\nkind = "stream"')
        found = problems(tmp_path, text)
        assert found[0] == "stream: is missing; add it, for example [stream] bound = 100.0, epsilon = 1.0"
        assert found[1].startswith('privacy: belongs to kind "histogram"; leave it out')

    @pytest.mark.parametrize("kind", ["stream", "local"])
    def test_the_section_of_another_kind_is_refused(self, tmp_path: Path, kind: str) -> None:
        [line] = problems(tmp_path, MINIMAL + f"[{kind}]\nbound = 1.0\nepsilon = 1.0\n")
        assert line == f'{kind}: belongs to kind "{kind}"; leave it out, or set pipeline.kind = "{kind}"'

    def test_an_unknown_kind_is_told_with_all_the_rest(self, tmp_path: Path) -> None:
        text = MINIMAL.replace('"page-views"', '"p"\nkind = "wall"').replace("epsilon = 6.0", "epsilon = 0")
        found = problems(tmp_path, text)
        assert found[0] == "pipeline.kind = \"wall\": use 'histogram', 'stream' or 'local'"
        assert found[1].startswith("privacy.epsilon = 0")
        assert len(found) == 2

    def test_code_of_one_kind_refuses_the_settings_of_another(self) -> None:
        with pytest.raises(
            ConfigurationError, match=r'pipeline\.kind = "histogram": this needs a pipeline of kind "local"'
        ):
            LocalSettings.of(changed())


class TestEnvironment:
    def test_overrides_come_last(self, tmp_path: Path) -> None:
        environ = {
            "SUSURRUS__KAFKA__BOOTSTRAP_SERVERS": "broker:9093",
            "SUSURRUS__START__FROM": "1970-01-01T00:00:01Z",
            "SUSURRUS__PRIVACY__EPSILON": "2.5",
            "SUSURRUS__KEYS__DISCOVER": "false",
            "SUSURRUS__KEYS__DECLARED": '["a", "b"]',
            "SUSURRUS__INPUT__KEY": '["url"]',
            "SUSURRUS__KAFKA__PROPERTIES__CLIENT_ID": "me",
            "SUSURRUS_SECRET": "not a setting",
            "OTHER": "ignored",
        }
        settings = load(tmp_path, MINIMAL, environ)
        assert settings.kafka.bootstrap_servers == "broker:9093"
        assert settings.start.from_ == 1000
        assert settings.privacy.epsilon == 2.5
        assert settings.declared_keys == (b'"a"', b'"b"')
        assert not settings.keys.discover
        assert kafka_properties.librdkafka(settings.kafka) == {"bootstrap.servers": "broker:9093", "client.id": "me"}

    def test_a_file_is_not_needed(self) -> None:
        environ = {
            "SUSURRUS__PIPELINE__NAME": "p",
            "SUSURRUS__INPUT": '{"topic": "t", "user": "u", "key": ["k"]}',
            "SUSURRUS__PRIVACY__EPSILON": "1",
            "SUSURRUS__PRIVACY__DELTA": "1e-9",
        }
        assert load_settings(None, environ).input.user == "u"

    def test_a_misspelt_override_is_an_error(self, tmp_path: Path) -> None:
        [line] = problems(tmp_path, MINIMAL, {"SUSURRUS__WINDOW__LENGHT": "1d"})
        assert line == 'window.lenght: unknown field; did you mean "length"?'

    def test_an_override_below_a_field_is_an_error(self, tmp_path: Path) -> None:
        assert "is not a section" in problems(tmp_path, MINIMAL, {"SUSURRUS__INPUT__TOPIC__X": "1"})[0]


class TestColumns:
    COLUMNS = (
        {"name": "visits", "kind": "count"},
        {"name": "people", "kind": "users"},
        {"name": "average", "kind": "mean", "field": "bytes", "bound": 1000.0, "grid": 10.0},
        {"name": "bytes", "kind": "sum", "field": "bytes", "bound": 1000.0, "grid": 10.0},
        {"name": "slow", "kind": "mean", "field": "time", "bound": 2.0},
    )

    def test_means_share_what_is_measured_anyway(self) -> None:
        settings = changed(columns=list(self.COLUMNS))  # type: ignore[arg-type]
        assert [column.name for column in settings.measured_columns] == ["visits", "people", "bytes", "slow/sum"]
        assert [column.bound for column in settings.measured_columns] == [1, 1, 100, 1024]
        published = {column.column.name: column.sources for column in settings.layout.published}
        assert published == {
            "visits": (0,),
            "people": (1,),
            "average": (2, 0),
            "bytes": (2,),
            "slow": (3, 0),
        }
        assert [value.path for value in settings.layout.values] == ["bytes", "time"]

    def test_a_mean_alone_brings_its_own_count(self) -> None:
        settings = changed(columns=[self.COLUMNS[4]])  # type: ignore[arg-type]
        assert [(c.name, c.measures, c.field) for c in settings.measured_columns] == [
            ("slow/sum", "sum", settings.layout.values[0]),
            ("slow/count", "count", None),
        ]


class TestDigest:
    CHANGES = (
        {"pipeline": {"name": "other"}},
        {"input": {"topic": "other"}},
        {"input": {"key": ["url", "method"]}},
        {"input": {"null_user": "value"}},
        {"input": {"empty_user": "value"}},
        {"input": {"format": "avro", "registry": {"url": "http://registry:8081"}}},
        {"input": {"format": "protobuf", "message": "events_pb2:Visit"}},
        {"input": {"time": "at", "time_unit": "d"}},
        {"input": {"time_format": "clf"}},
        {"input": {"time_zone": "UTC"}},
        {"clock": {"kind": "producer"}},
        {"clock": {"max_future": "1s"}},
        {"clock": {"max_future": "0s"}},
        {
            "clock": {"kind": "replay", "until": "1995-08-02T00:00:00Z"},
            "start": {"first_window": "1995-08-01T00:00:00Z"},
        },
        {"window": {"length": "2d"}},
        {"window": {"trigger_every": "30m"}},
        {"window": {"allowed_lateness": "15m"}},
        {"window": {"origin": "1970-01-01T01:00:00Z"}},
        {"bounds": {"max_records_per_user": 16}},
        {"columns": [{"name": "visits"}]},
        {"keys": {"declared": ["a"]}},
        {"keys": {"minimum_users": 5}},
        {"keys": {"remember": 7}},
        {"keys": {"evidence_windows": 4}},
        {"privacy": {"epsilon": 5.0}},
        {"privacy": {"delta": 1e-8}},
        {"privacy": {"strategy": "toeplitz"}},
        {"privacy": {"strategy": "dp-sqlp"}},
        {"privacy": {"closing": {"unknown_share": 0, "public_share": 0}}},
        {"privacy": {"closing": {"lag": 3, "unknown_share": 0.2, "keys": 12}}},  # of the default
        {"privacy": {"gaussian_delta_fraction": 0.6}},
        {"topics": {"by_user_partitions": 4}},
        {"topics": {"bounded_partitions": 4}},
    )
    ROLLING = (
        {"input": {"empty_user": "dead-letter"}},  # the default: a digest of before it is the same
        {"pipeline": {"prefix": "other"}},
        {"kafka": {"bootstrap_servers": "b:1", "properties": {"linger.ms": 5}}},
        {"start": {"from": "earliest", "first_window": "1995-08-01T00:00:00Z"}},
        {"clock": {"grace": "1s", "idle_grace": "1m"}},
        {"window": {"publication_pad": "1s"}},
        {"privacy": {"secret_file": "elsewhere"}},
        {"budget": {"epsilon": 50, "delta": 1e-6}},
        {"topics": {"replication_factor": 1, "min_insync_replicas": 1, "retention": "1d"}},
        {"worker": {"data_directory": "elsewhere", "web_port": 6066}},
    )

    @pytest.mark.parametrize("change", CHANGES, ids=str)
    def test_what_changes_published_data_changes_the_digest(self, change: dict[str, Any]) -> None:
        assert changed(**change).config_digest() != changed().config_digest()

    @pytest.mark.parametrize("change", ROLLING, ids=str)
    def test_what_may_roll_does_not(self, change: dict[str, Any]) -> None:
        assert changed(**change).config_digest() == changed().config_digest()

    def test_the_rules_of_the_zone_count_and_where_they_are_kept_does_not(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A tzdata with other rules reads other instants: it may not go on with an epoch."""
        zoned = changed(input={"time": "at", "time_unit": "iso", "time_zone": "Europe/Berlin"})
        before = zoned.published_fields()
        assert "input.time_zone.rules" not in changed(input={"time": "at", "time_unit": "iso"}).published_fields()
        other = Zone("Europe/Paris").rules
        monkeypatch.setattr(Zone, "__init__", lambda self, name: setattr(self, "rules", other))
        after = zoned.published_fields()
        assert {name for name in after if after[name] != before.get(name)} == {"input.time_zone.rules"}

    def test_the_default_of_max_future_has_the_digest_of_the_default_before_it_and_no_two_values_share_one(
        self,
    ) -> None:
        """It was 0: pipelines that began with it go on, with the new default."""
        default = changed().clock.max_future
        assert changed().published_fields()["clock.max_future"] == 0
        assert changed(clock={"max_future": default}).config_digest() == changed().config_digest()
        fields = [
            changed(input={"time": "at"}, clock={"max_future": value}).published_fields()["clock.max_future"]
            for value in ("0s", default, "1ms", "1s", "1d")
        ]
        assert fields == ["0", 0, 1, 1_000, 86_400_000]

    @pytest.mark.parametrize(
        "field",
        [
            {"lag": 2},
            {"ranked_keys": 4},
            {"gamma": 0.5},
            {"prior": [2.0, 1.0]},
            {"unknown_share": 0.2},
            {"public_share": 0.2},
            {"discovery_share": 0.3},
            {"filter_weight": 0.5},
            {"keys": 12},
            NO_LAST_LOOK,
        ],
    )
    def test_what_shapes_the_closing_strategy_changes_the_digest(self, field: dict[str, Any]) -> None:
        plain = changed(privacy={"strategy": "closing"})
        other = changed(privacy={"strategy": "closing", "closing": field})
        assert other.config_digest() != plain.config_digest()
        assert other.plan().digest() != plain.plan().digest()

    @pytest.mark.parametrize("strategy", ["toeplitz", "dp-sqlp"])
    def test_the_section_of_another_strategy_is_refused_and_may_stand_there_with_its_defaults(
        self, strategy: str
    ) -> None:
        plain = changed(privacy={"strategy": strategy})
        with pytest.raises(ConfigurationError, match=r"privacy\.closing: has no meaning .*delete the section"):
            changed(privacy={"strategy": strategy, "closing": {"lag": 7, "ranked_keys": 3, "gamma": 0.5}})
        other = changed(privacy={"strategy": strategy, "closing": {"lag": 1}})
        assert other.config_digest() == plain.config_digest()
        assert other.plan().digest() == plain.plan().digest()

    def test_the_values_of_the_default_prior_are_in_the_digest(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = changed(privacy={"strategy": "closing"}).config_digest()
        monkeypatch.setattr(closing_parameters, "DECAY", 0.8)
        assert changed(privacy={"strategy": "closing"}).config_digest() != before

    def test_what_no_parameter_changes_is_in_the_digest_of_the_plan(self, monkeypatch: pytest.MonkeyPatch) -> None:
        strategies = ("closing", "toeplitz")
        before = {name: changed(privacy={"strategy": name}).plan().digest() for name in strategies}
        monkeypatch.setattr(closing_parameters, "CONSTANTS", (*closing_parameters.CONSTANTS[:-1], 0.5))
        after = {name: changed(privacy={"strategy": name}).plan().digest() for name in strategies}
        assert after["closing"] != before["closing"]
        assert after["toeplitz"] == before["toeplitz"]

    def test_every_section_is_judged(self) -> None:
        for pipeline in KINDS.values():
            settings = pipeline.settings_class
            covered = {path.split(".")[0] for path in settings.published}
            assert covered | {"kafka", "output", "start", "budget", "worker"} == set(settings.model_fields)

    def test_it_is_pinned(self) -> None:
        # A new default or field changes what runs under an existing epoch: raise DIGEST_VERSION on purpose.
        toeplitz = changed(privacy={"strategy": "toeplitz"})
        assert toeplitz.config_digest().hex() == "eb270e2e291a10a7009fbedf291ae07eda7cee90d261bc0d329a91acaaae1214"
        assert json.loads(changed().published_json())["version"] == DIGEST_VERSION == 1

    def test_where_the_declared_list_is_kept_does_not_matter(self, tmp_path: Path) -> None:
        (tmp_path / "keys.jsonl").write_text('"b"\n"a\u2028c"\n\n"b"\n', encoding="utf-8")
        filed = load(tmp_path, MINIMAL + '[keys]\ndeclared_file = "keys.jsonl"\n')
        listed = load(tmp_path, MINIMAL + '[keys]\ndeclared = ["a\\u2028c", "b"]\n')
        assert filed.declared_keys == ('"a\u2028c"'.encode(), b'"b"')
        assert filed.config_digest() == listed.config_digest()

    def test_declared_keys_are_the_bytes_that_records_decode_to(self) -> None:
        settings = changed(
            input={"key": ["a", "b"]}, keys={"declared": [["x/ü", 1.0], [True, -0.0], [1, 2.5], [False, 1]]}
        )
        records = [b'{"host":1,"a":"x/\\u00fc","b":1}', b'{"host":1,"a":true,"b":0}', b'{"host":1,"a":1.0,"b":25e-1}']
        records.append(b'{"host":1,"a":false,"b":1e0}')
        decoder = RawDecoder(settings.raw_schema())
        assert sorted(decoder.decode(JsonReader(decoder.paths).read(records)).keys) == list(settings.declared_keys)

    def test_a_product_is_the_list_of_its_combinations(self) -> None:
        grouped = {"key": ["country", {"name": "device", "expression": "lower(agent)"}]}
        product = {"device": ["phone", "desktop", "phone"], "country": ["FR", "DE", 1.0]}
        listed = [[country, device] for country in ("DE", "FR", 1) for device in ("phone", "desktop")]
        combined, declared = (
            changed(input=grouped, keys=keys) for keys in ({"product": product}, {"declared": listed})
        )
        assert len(combined.declared_keys) == 6
        assert combined.declared_keys == declared.declared_keys
        assert combined.config_digest() == declared.config_digest()
        assert changed(keys={"product": {"url": ["b", "a"]}}).declared_keys == (b'"a"', b'"b"')

    @pytest.mark.parametrize("line", ["a", "{}", '["a", "b"]', "[[1]]", "NaN"])
    def test_a_bad_line_of_declared_keys_is_named_but_not_shown(self, tmp_path: Path, line: str) -> None:
        (tmp_path / "keys.jsonl").write_text(f'"ok"\n{line}\n', encoding="utf-8")
        assert "line 2" in problems(tmp_path, MINIMAL + '[keys]\ndeclared_file = "keys.jsonl"\n')[0]


class TestOneKeyForAllRecords:
    def test_it_is_declared_and_a_user_has_one_record_that_counts(self) -> None:
        settings = changed(input={"key": []})
        plan = settings.plan()
        assert (settings.declared_keys, plan.discover) == ((b'"all"',), False)
        assert (plan.max_records, plan.max_records_per_key) == (1, 1)
        assert changed(input={"key": []}, bounds={"max_records_per_key": 5}).plan().max_records == 5
        assert settings.input.key_names == ("everything",)

    def test_it_is_as_precise_as_a_declared_constant_under_the_best_caps(self) -> None:
        constant = changed(
            input={"key": [{"name": "everything", "expression": "'all'"}]},
            keys={"declared": ["all"], "discover": False},
            bounds={"max_records_per_user": 1},
        )
        total = changed(input={"key": []})
        assert total.plan() == constant.plan()
        assert total.declared_keys == constant.declared_keys
        # What a record becomes is the same, too.
        records = [b'{"host":"a"}', b'{"host":null}', b'{"host":"b"}']
        decoder = RawDecoder(total.raw_schema())
        found = decoder.decode(JsonReader(decoder.paths).read(records))
        assert (found.key.tolist(), found.keys) == ([0, -1, 0], [b'"all"'])
        assert decoder.decode(JsonReader(decoder.paths).read([b"{}"])).keys == []

    @pytest.mark.parametrize(
        ("sections", "problem"),
        [
            (
                {"bounds": {"max_records_per_user": 4}},
                "bounds.max_records_per_user = 4: with input.key = [] there is one key",
            ),
            ({"keys": {"declared": ["a"]}}, "keys.declared: with input.key = [] there is one key, which is published"),
            ({"keys": {"product": {"everything": ["a"]}}}, "keys.product: with input.key = [] there is one key"),
        ],
    )
    def test_what_speaks_of_other_keys_is_refused(self, sections: dict[str, Any], problem: str) -> None:
        with pytest.raises(ConfigurationError, match=re.escape(problem)):
            changed(input={"key": []}, **sections)

    def test_what_has_no_effect_is_told(self) -> None:
        settings = changed(input={"key": [], "null_key": "dead-letter"}, keys={"discover": False, "minimum_users": 3})
        said = [finding.text for finding in settings.findings()]
        assert [text.split(":")[0] for text in said] == ["keys.discover", "input.null_key", "keys.minimum_users"]

    def test_a_key_that_is_left_out_is_still_missed(self, tmp_path: Path) -> None:
        [line] = problems(tmp_path, MINIMAL.replace('key = ["url"]', ""))
        assert line.startswith("input.key: is missing")
        assert "key = [] for one total" in line


class TestRememberedKeys:
    def test_without_them_a_pipeline_has_the_digest_that_it_had(self) -> None:
        assert changed(keys={"remember": 6}).config_digest() == changed().config_digest()
        assert changed().published_fields()["keys"]["remember"] == 6
        fields = changed(keys={"remember": 0}).published_fields()["keys"]
        assert not {"remember", "smoothing"} & fields.keys()
        digests = {changed(keys={"remember": least}).config_digest() for least in (0, 1, 6)}
        assert len(digests) == 3

    @pytest.mark.parametrize(
        ("sections", "under"),
        [
            ({"privacy": {"strategy": "toeplitz"}}, 'privacy.strategy = "toeplitz"'),
            (
                {"keys": {"declared": ["a"], "discover": False}},
                'privacy.strategy = "toeplitz", the default (only declared keys',
            ),
            (
                {
                    "bounds": {"max_records_per_key": 3},
                    "privacy": {"strategy": "closing", "closing": {"unknown_share": 0, "public_share": 0}},
                },
                "columns of which none counts users",
            ),
        ],
    )
    def test_where_nothing_can_be_handed_on_they_are_refused(self, sections: dict[str, Any], under: str) -> None:
        assert changed(**sections).remember == 0
        keys = {**sections.get("keys", {}), "remember": 6}
        with pytest.raises(ConfigurationError) as refused:
            changed(**{**sections, "keys": keys})
        assert str(refused.value).startswith(f"keys.remember: has no meaning for {under}")
        assert "delete the line remember = 6 of [keys]" in str(refused.value)

    def test_a_level_that_counts_users_is_enough(self) -> None:
        column = [{"name": "people", "kind": "users"}, {"name": "visits", "kind": "count"}]
        sets = {"topic": "raw", "user": "host", "key": ["url", "country"], "grouping_sets": [["url"], ["country"]]}
        assert changed(input=sets, columns=column, keys={"remember": 6}).remember == 6


class TestEvidenceOverWindows:
    def test_without_it_a_pipeline_has_the_digest_that_it_had(self) -> None:
        assert changed(keys={"evidence_windows": 1}).config_digest() == changed().config_digest()
        assert "evidence_windows" not in changed().published_fields()["keys"]
        digests = {changed(keys={"evidence_windows": windows}).config_digest() for windows in (1, 2, 4)}
        assert len(digests) == 3
        assert [changed(keys={"evidence_windows": windows}).plan().evidence_windows for windows in (1, 2, 4)] == [
            1,
            2,
            4,
        ]

    @pytest.mark.parametrize(
        ("sections", "under"),
        [
            ({"privacy": {"strategy": "toeplitz"}}, 'privacy.strategy = "toeplitz"'),
            ({"privacy": {"closing": {"unknown_share": 0, "public_share": 0}}}, "unknown_share = 0"),
            (
                {"keys": {"declared": ["a"], "discover": False}},
                'privacy.strategy = "toeplitz", the default (only declared keys',
            ),
        ],
    )
    def test_where_windows_measure_nothing_at_their_end_it_is_refused(
        self, sections: dict[str, Any], under: str
    ) -> None:
        keys = {**sections.get("keys", {}), "evidence_windows": 2}
        with pytest.raises(ConfigurationError) as refused:
            changed(**{**sections, "keys": keys})
        assert str(refused.value).startswith(f"keys.evidence_windows: has no meaning for {under}")

    def test_other_numbers_are_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="evidence_windows = 3: use 1, 2 or 4"):
            changed(keys={"evidence_windows": 3})


class TestRanking:
    def test_it_is_in_the_digest_of_pipelines_that_have_one(self) -> None:
        plain, ranked = changed(), changed(top={"order_by": "count"})
        assert "top" not in plain.published_fields()
        assert ranked.config_digest() != plain.config_digest()
        assert ranked.config_digest() == changed(top={"order_by": "count", "limit": 10}).config_digest()
        assert changed(top={"order_by": "count", "limit": 9}).config_digest() != ranked.config_digest()
        assert str(ranked.top.ranking) == "ORDER BY count DESC LIMIT 10"

    def test_its_topics_are_there_with_it_only(self) -> None:
        names = [{spec.name for spec in changed(**more).topic_specs} for more in ({}, {"top": {"order_by": "count"}})]
        assert names[1] - names[0] == {"candidates", "rank-changelog", "top"}

    def test_shorter_keys_leave_room_for_more_rows(self) -> None:
        assert changed(top={"order_by": "count", "limit": 200}).top.limit == 200
        assert changed(top={"order_by": "count", "limit": 1000}, input={"max_key_bytes": 400}).top.limit == 1000

    def test_conditions_have_one_spelling(self) -> None:
        top = changed(top={"order_by": "count", "having": ["count>=100", " count  <  2.50 "], "order": "ascending"}).top
        assert top.having == ("count >= 100", "count < 2.5")
        assert str(top.ranking) == "HAVING count >= 100 AND count < 2.5 ORDER BY count LIMIT 10"

    @pytest.mark.parametrize(
        ("top", "more", "problem"),
        [
            ({}, {}, "top.order_by: is missing"),
            ({"order_by": "visits"}, {}, 'top.order_by = "visits": there is no such column; use'),
            (
                {"order_by": "count", "having": ["count >= 1", "x > 1"]},
                {},
                'top.having, number 2 = "x > 1": there is no such column',
            ),
            (
                {"order_by": "count", "having": ["count = 1"]},
                {},
                "write a published column, one of >=, >, <=, <, and a number",
            ),
            ({"order_by": "count", "having": ["count > 1e999"]}, {}, "write a published column"),
            ({"order_by": "count", "having": ["count > 1e"]}, {}, "write a published column"),
            ({"order_by": "count", "limit": 0}, {}, "top.limit = 0: must be greater than or equal to 1"),
            ({"order_by": "count", "limit": 1001}, {}, "top.limit = 1001: must be less than or equal to 1000"),
            (
                {"order_by": "count", "limit": 201},
                {},
                "top.limit = 201: one record has the whole ranking, and keys may have",
            ),
            ({"order_by": "count"}, {"input": {"key": []}}, "top: with input.key = [] there is one row"),
            ({"order_by": "count"}, {"privacy": {"strategy": "dp-sqlp"}}, "publishes the keys that are new"),
        ],
    )
    def test_what_cannot_be_ranked_is_refused(self, top: dict[str, Any], more: dict[str, Any], problem: str) -> None:
        with pytest.raises(ConfigurationError, match=re.escape(problem)):
            changed(top=top, **more)


class TestPlan:
    def test_closing_has_ranks_of_its_own(self) -> None:
        section = {"lag": 4, "ranked_keys": 9, "gamma": 0.7, "prior": [3.0, 1.0]}
        own = changed(privacy={"strategy": "closing", "closing": section}).plan().parameters
        assert (own.ranked_keys, own.gamma, own.lag, own.prior) == (9, 0.7, 4, (3.0, 1.0))
        assert not hasattr(changed(privacy={"strategy": "toeplitz"}).plan().parameters, "ranked_keys")

    def test_closing_without_its_last_look_has_nothing_to_say_about_it(self) -> None:
        own = (
            changed(privacy={"closing": {"ranked_keys": 32, "discovery_share": 0.5, **NO_LAST_LOOK}}).plan().parameters
        )
        assert (own.last_look, own.value_share, own.ranked_keys) == (False, 0.5, 32)
        assert changed().plan().parameters.last_look
        for field, value in (("keys", 8), ("filter_weight", 0.5)):
            with pytest.raises(
                ConfigurationError, match=rf"privacy\.closing.*{field}={value}: has no meaning.*delete it"
            ):
                changed(privacy={"closing": {field: value, **NO_LAST_LOOK}})

    def test_closing_divides_the_budget_by_its_own_shares(self) -> None:
        shares = {"discovery_share": 0.3, "unknown_share": 0.2, "public_share": 0.15, "keys": 12}
        own = changed(privacy={"strategy": "closing", "closing": shares}).plan().parameters
        assert (own.discovery_share, own.unknown_share, own.public_share, own.keys) == (0.3, 0.2, 0.15, 12)

    @pytest.mark.parametrize("named", [{}, {"strategy": "closing"}])
    def test_closing_refuses_the_share_of_the_others(self, named: dict[str, str]) -> None:
        with pytest.raises(
            ConfigurationError, match=r"privacy\.selection_share = 0\.7: .*use privacy\.closing\.discovery_share"
        ):
            changed(privacy={**named, "selection_share": 0.7})
        assert changed(privacy={"strategy": "toeplitz", "selection_share": 0.7}).plan().selection_share == 0.7

    def test_who_named_no_strategy_learns_that_there_are_others(self) -> None:
        with pytest.raises(ConfigurationError, match=r"or name another privacy\.strategy"):
            changed(privacy={"selection_share": 0.7})

    def test_closing_has_these_defaults(self) -> None:
        plan = changed(privacy={"strategy": "closing"}).plan()
        own = plan.parameters
        assert (own.lag, own.ranked_keys, own.gamma, own.prior, plan.selection_share) == (1, 10, 0.65, None, 0.5)
        assert (own.discovery_share, own.unknown_share, own.public_share) == (0.4, 0.13, 0.05)
        assert (own.keys, own.filter_weight) == (16, None)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("unknown_share", -1),
            ("unknown_share", 1),
            ("public_share", -1),
            ("public_share", 1),
            ("keys", 0),
            ("keys", 65_537),
            ("lag", 0),
        ],
    )
    def test_fields_of_closing_have_limits(self, field: str, value: float) -> None:
        with pytest.raises(ConfigurationError, match=rf"privacy\.closing\.{field} = {value}"):
            changed(privacy={"strategy": "closing", "closing": {field: value}})

    @pytest.mark.parametrize("one", ["unknown_share", "public_share"])
    def test_half_a_last_look_is_refused(self, one: str) -> None:
        with pytest.raises(ConfigurationError, match=r"are both 0, which leaves the last look out, or both above 0"):
            changed(privacy={"strategy": "closing", "closing": {one: 0}})

    def test_a_cap_on_keys_is_refused_where_keys_are_ranked(self) -> None:
        with pytest.raises(ConfigurationError, match=r"use privacy\.closing\.ranked_keys instead"):
            changed(privacy={"strategy": "closing"}, bounds={"max_keys_per_user": 4})

    def test_the_plan_says_what_the_configuration_says(self) -> None:
        plan = changed(bounds={"max_records_per_user": 24, "max_records_per_key": 2}, keys={"minimum_users": 3}).plan()
        assert (plan.strategy, plan.triggers, plan.epsilon, plan.delta) == ("toeplitz", 96, 6.0, 1e-9)
        assert (plan.max_records, plan.max_records_per_key, plan.minimum_users) == (24, 2, 3)
        assert [(column.name, column.kind, column.bound) for column in plan.columns] == [("count", "count", 1)]


class TestStrategy:
    """Which strategy runs where none is named. tests/mechanisms/histogram/test_registry.py has the rule itself."""

    MEAN = ({"name": "size", "kind": "mean", "field": "bytes", "bound": 100.0},)

    @pytest.mark.parametrize(
        ("sections", "strategy"),
        [
            ({}, "closing"),
            ({"window": {"trigger_every": "12h"}}, "closing"),
            ({"window": {"trigger_every": "1d"}}, "toeplitz"),
            ({"window": {"trigger_every": "1d", "allowed_lateness": "1h"}}, "closing"),  # a late trigger is one
            ({"bounds": {"max_records_per_key": 2}}, "toeplitz"),
            ({"bounds": {"max_records_per_key": 2}, "columns": ({"name": "u", "kind": "users"},)}, "closing"),
            ({"columns": MEAN}, "closing"),  # the count that it needs counts users
            ({"columns": MEAN, "bounds": {"max_records_per_key": 2}}, "toeplitz"),
            ({"columns": ({"name": "b", "kind": "sum", "field": "bytes", "bound": 100.0},)}, "toeplitz"),
            ({"keys": {"discover": False, "declared": ["a"]}}, "toeplitz"),
            ({"bounds": {"max_keys_per_user": 4}}, "toeplitz"),
        ],
        ids=str,
    )
    def test_the_default_follows_from_public_constants(self, sections: dict[str, Any], strategy: str) -> None:
        settings = changed(**sections)
        assert settings.strategy.name == settings.plan().strategy == strategy
        assert type(settings.plan().parameters) is settings.strategy.Parameters
        assert build_strategy(settings.plan()).guarantee.epsilon == 6.0
        assert ("published-keys" in {spec.name for spec in settings.topic_specs}) == (strategy == "closing")

    @pytest.mark.parametrize("sections", [{}, {"bounds": {"max_keys_per_user": 4}}], ids=["closing", "toeplitz"])
    def test_writing_the_default_down_changes_no_digest(self, sections: dict[str, Any]) -> None:
        left_out = changed(**sections)
        name = left_out.strategy.name
        written = changed(**sections, privacy={"strategy": name})
        assert written.published_fields() == left_out.published_fields()
        assert left_out.published_fields()["privacy.strategy"] == name
        assert written.config_digest() == left_out.config_digest()
        assert pipeline_of(written).digest() == pipeline_of(left_out).digest()

    def test_the_section_of_the_default_is_its_parameters(self) -> None:
        assert changed(privacy={"closing": {"lag": 3}}).plan().parameters.lag == 3
        assert changed(privacy={"closing": {"lag": 3}}).config_digest() != changed().config_digest()

    def test_what_the_file_says_is_not_taken_for_what_runs(self) -> None:
        for settings in (changed(), changed(privacy={"strategy": "dp-sqlp"})):
            assert not hasattr(settings.privacy, "strategy")
        assert changed().choice.reason is not None
        assert changed(privacy={"strategy": "closing"}).choice.reason is None

    def test_only_the_name_of_the_documentation_is_read(self) -> None:
        with pytest.raises(ConfigurationError, match=r"privacy\.named: unknown field"):
            changed(privacy={"named": "toeplitz"})
        with pytest.raises(ConfigurationError, match=r'privacy\.strategy = "laplace": use '):
            changed(privacy={"strategy": "laplace"})

    def test_a_calendar_that_does_not_fit_is_told_once_and_alone(self) -> None:
        with pytest.raises(ConfigurationError) as caught:
            changed(window={"trigger_every": "7h"}, privacy={"selection_share": 0.7})
        assert len(str(caught.value).splitlines()) == 1
        assert "window.trigger_every" in str(caught.value)


class TestSecrets:
    def test_hex_base64_and_raw_bytes_are_keys(self) -> None:
        key = bytes(range(32))
        assert secrets.decode(key.hex().encode() + b"\n", "x") == key
        assert secrets.decode(b"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "x") == key
        raw = bytes(range(128, 160))
        assert secrets.decode(raw, "x") == raw

    @pytest.mark.parametrize(
        "data", [b"", b"00" * 31, b"correct horse battery staple, a long pass phrase", b"\xff" * 31]
    )
    def test_too_short_or_a_pass_phrase_is_no_key(self, data: bytes) -> None:
        with pytest.raises(ConfigurationError) as caught:
            secrets.decode(data, "privacy.secret_file")
        assert "horse" not in str(caught.value)
        assert caught.value.action == "make a secret with `susurrus config secret FILE`"

    def test_file_before_environment_and_neither_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "noise").write_text("ab" * 32)
        settings = load(tmp_path, MINIMAL + 'secret_file = "noise"\n')
        assert settings.secret({"SUSURRUS_SECRET": "00" * 32}) == b"\xab" * 32
        assert changed().secret({"SUSURRUS_SECRET": "00" * 32}) == bytes(32)
        with pytest.raises(ConfigurationError) as caught:
            changed().secret({})
        assert caught.value.text == "privacy.secret_file: no noise secret"
        assert caught.value.action.startswith("make one with `susurrus config secret FILE`")

    def test_a_new_secret_is_private_and_never_replaces_one(self, tmp_path: Path) -> None:
        path = tmp_path / "noise"
        secrets.create(path)
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert len(secrets.load(path, {}, "privacy.secret_file")) == 32
        with pytest.raises(ConfigurationError, match="exists"):
            secrets.create(path)

    def test_a_password_comes_from_a_file_and_is_never_shown(self, tmp_path: Path) -> None:
        (tmp_path / "password").write_text("hunter2\n")
        text = MINIMAL + (
            '[kafka.properties]\nsecurity.protocol = "SASL_PLAINTEXT"\n"sasl.mechanism" = "SCRAM-SHA-512"\n'
            'sasl.username = "me"\nsasl.password = { file = "password" }\n'
        )
        settings = load(tmp_path, text)
        assert kafka_properties.librdkafka(settings.kafka)["sasl.password"] == "hunter2"
        assert "hunter2" not in repr(settings)
        assert "hunter2" not in "\n".join(problems(tmp_path, text.replace('"SCRAM-SHA-512"', '"NONE"')))

    @pytest.mark.parametrize(
        ("fields", "line"),
        [
            ({"format": "avro"}, 'input.registry: is missing; input.format = "avro" needs it'),
            ({"format": "protobuf"}, 'input.message: is missing; input.format = "protobuf" needs it'),
            (
                {"format": "protobuf", "message": "Visit"},
                'input.message = "Visit": is a name, and nothing tells its fields',
            ),
            ({"format": "protobuf", "message": "a:b:C"}, 'input.message = "a:b:C": write package.module:Message'),
            ({"message": "events_pb2:Visit"}, 'input.message: has no meaning for input.format = "json"'),
        ],
    )
    def test_every_format_needs_its_own(self, fields: dict[str, Any], line: str) -> None:
        with pytest.raises(ConfigurationError, match=re.escape(line)):
            changed(input=fields)

    def test_the_registrys_password_too_and_where_it_is_may_change(self, tmp_path: Path) -> None:
        (tmp_path / "login").write_text("me:hunter2\n")
        text = MINIMAL.replace("[input]", '[input]\nformat = "avro"') + (
            '[input.registry]\nurl = "https://registry:8081"\nproperties.basic.auth.user.info = { file = "login" }\n'
        )
        settings = load(tmp_path, text)
        other = {"SUSURRUS__INPUT__REGISTRY__PROPERTIES__SSL_CA_LOCATION": "/etc/ca.pem"}
        moved = load(tmp_path, text.replace("registry:8081", "elsewhere:8081"), other)
        assert settings.input.registry is not None
        assert moved.input.registry is not None
        assert settings.input.registry.properties == {"basic.auth.user.info": "me:hunter2"}
        assert moved.input.registry.properties == {
            "basic.auth.user.info": "me:hunter2",
            "ssl.ca.location": "/etc/ca.pem",
        }
        assert settings.config_digest() == moved.config_digest()
        assert "hunter2" not in repr(settings) + settings.published_json()

    def test_the_output_has_a_registry_of_its_own_and_changes_no_digest(self, tmp_path: Path) -> None:
        (tmp_path / "login").write_text("me:hunter2\n")
        text = MINIMAL + (
            '[output]\nformat = "avro"\n[output.registry]\nurl = "https://registry:8081"\n'
            'properties.basic.auth.user.info = { file = "login" }\n'
        )
        settings = load(tmp_path, text)
        assert settings.output.registry is not None
        assert settings.output.registry.properties == {"basic.auth.user.info": "me:hunter2"}
        assert settings.config_digest() == load(tmp_path, MINIMAL).config_digest()
        assert "hunter2" not in repr(settings)

    @pytest.mark.parametrize(
        ("sections", "line"),
        [
            ({"output": {"format": "xml"}}, "output.format = \"xml\": use 'json', 'avro' or 'protobuf'"),
            ({"output": {"format": "avro"}}, 'output.registry: is missing; output.format = "avro" needs it'),
            ({"output": {"format": "avro", "registry": {"url": "http://me:hunter2@r"}}}, "output.registry.url: write"),
            (
                {
                    "output": {"format": "protobuf", "registry": {"url": "http://r"}},
                    "columns": [{"name": "a-b", "kind": "count"}, {"name": "a_b", "kind": "users"}],
                },
                'output.format = "protobuf": "a-b" and "a_b" are both "a_b" there; rename one of them',
            ),
        ],
    )
    def test_outputs_are_checked(self, sections: dict[str, Any], line: str) -> None:
        with pytest.raises(ConfigurationError) as refused:
            changed(**sections)
        assert line in str(refused.value)
        assert "hunter2" not in str(refused.value)

    def test_a_missing_password_file_is_named_beside_everything_else(self, tmp_path: Path) -> None:
        sasl = '"security.protocol" = "SASL_SSL"\n"sasl.mechanism" = "PLAIN"\n"sasl.username" = "me"\n'
        text = MINIMAL + "[kafka.properties]\n" + sasl + '"sasl.password" = { file = "none" }\n'
        [line] = problems(tmp_path, text)
        assert line.startswith('kafka.properties."sasl.password": cannot read file=')
        password, field = problems(tmp_path, text + '[widow]\nlength = "1d"\n')
        assert password == line
        assert field.startswith("widow: unknown field")

    def test_a_file_can_be_read_where_its_passwords_are_not(self, tmp_path: Path) -> None:
        path = tmp_path / "pipeline.toml"
        path.write_text(MINIMAL + '[kafka.properties]\n"ssl.key.password" = { env = "NOT_HERE" }\n')
        unresolved: list[Finding] = []
        settings = load_settings(path, {}, unresolved=unresolved)
        [found] = unresolved
        assert (found.level, found.text) == (
            "unknown",
            'kafka.properties."ssl.key.password": env="NOT_HERE" is not set',
        )
        assert found.action == "set that environment variable"
        assert settings.kafka.properties == {"ssl.key.password": ""}


def kafka(servers: str, properties: dict[str, Any]) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers=servers, properties=properties)


class TestTranslation:
    SASL = {  # noqa: RUF012
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "me",
        "sasl.password": "p",
        "session.timeout.ms": 20_000,
        "linger.ms": 5,
    }

    def test_sasl_for_aiokafka(self) -> None:
        assert for_aiokafka(kafka("a:1, b:2", self.SASL)) == {
            "bootstrap_servers": ["a:1", "b:2"],
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_plain_username": "me",
            "sasl_plain_password": "p",
            "session_timeout_ms": 20_000,
        }

    def test_aiokafka_takes_every_argument(self) -> None:
        import inspect

        from aiokafka import AIOKafkaConsumer

        known = inspect.signature(AIOKafkaConsumer.__init__).parameters
        properties = dict.fromkeys(kafka_properties.INTEGERS, "1") | {"client.id": "c", "client.rack": "r"}
        sasl = for_aiokafka(kafka("a:1", {**self.SASL, **properties, "security.protocol": "SASL_SSL"}))
        assert set(sasl) <= set(known)

    def test_faust_credentials_say_the_same(self) -> None:
        from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth

        assert for_faust(kafka("a:1", {}))["broker_credentials"] is None
        for protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
            properties = {**self.SASL, "security.protocol": protocol}
            ours = for_aiokafka(kafka("a:1", properties))
            credentials = for_faust(kafka("a:1", properties))["broker_credentials"]
            theirs = dict(credentials_to_aiokafka_auth(credentials))
            assert isinstance(theirs.pop("ssl_context"), ssl.SSLContext if protocol == "SASL_SSL" else type(None))
            assert theirs == {name: ours[name] for name in theirs}

    def test_tls_verification_follows_librdkafka(self) -> None:
        context = kafka_properties.ssl_context({})
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert context.check_hostname
        assert not kafka_properties.ssl_context({"ssl.endpoint.identification.algorithm": "none"}).check_hostname
        loose = kafka_properties.ssl_context({"enable.ssl.certificate.verification": "false"})
        assert loose.verify_mode == ssl.CERT_NONE

    def test_a_missing_certificate_is_a_configuration_error(self) -> None:
        with pytest.raises(ConfigurationError, match=r"ssl\.ca\.location"):
            kafka_properties.ssl_context({"ssl.ca.location": "/nowhere"})

    def test_librdkafka_accepts_what_we_hand_it(self) -> None:
        from confluent_kafka import Producer

        settings = changed(kafka={"properties": {"client.id": "me", "linger.ms": 5}})
        Producer(kafka_properties.librdkafka(settings.kafka)).flush(0)


def test_local_reports_have_an_input_format_and_their_own_topic() -> None:
    def local(**given: Any) -> Settings:
        data = {"pipeline": {"name": "p", "kind": "local"}, "local": {"bound": 10.0, "epsilon": 1.0}}
        return settings_from(data | ({"input": given} if given else {}), environ={})

    assert local().input.topic == local(format="json").input.topic == "susurrus.p.reports"
    assert local(topic="t").input.topic == "t"
    assert local(format="protobuf", message="module:Class").input.message == "module:Class"
    with pytest.raises(ConfigurationError, match=r"^input\.registry: is missing"):
        local(format="avro")
    with pytest.raises(ConfigurationError, match=r"^input\.message: has no meaning"):
        local(message="module:Class")
