"""What people write: durations and instants are texts, and a setting without effect does not stand there quietly."""

from pathlib import Path
from typing import Any

import pytest
import tomli_w

from susurrus.agents.config.settings import Settings
from susurrus.agents.pipelines import load_settings, settings_from
from susurrus.mechanisms.errors import ConfigurationError
from susurrus.mechanisms.histogram.registry import STRATEGIES
from tests.agents.config.test_settings import changed
from tests.pipeline import merged

HISTOGRAM: dict[str, Any] = {
    "pipeline": {"name": "page-views"},
    "input": {"topic": "web-requests", "user": "host", "key": ["url"]},
    "privacy": {"epsilon": 6.0, "delta": 1e-9},
}
STREAM: dict[str, Any] = {
    "pipeline": {"name": "values", "kind": "stream"},
    "input": {"topic": "values"},
    "stream": {"bound": 100.0, "epsilon": 1.0},
}
PAK = merged(STREAM, {"stream": {"method": "pak", "horizon": 1_000_000}})
LOCAL: dict[str, Any] = {"pipeline": {"name": "meters", "kind": "local"}, "local": {"bound": 100.0, "epsilon": 1.0}}
REPLAY = merged(
    HISTOGRAM,
    {
        "clock": {"kind": "replay", "until": "1995-08-02T00:00:00Z"},
        "start": {"first_window": "1995-08-01T00:00:00Z"},
    },
)


def loaded(tmp_path: Path, data: dict[str, Any], environ: dict[str, str] | None = None) -> Settings:
    path = tmp_path / "p.toml"
    path.write_text(tomli_w.dumps(data))
    return load_settings(path, environ or {})


def refused(tmp_path: Path, data: dict[str, Any], environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        loaded(tmp_path, data, environ)
    return str(caught.value).splitlines()


class TestBareNumbers:
    @pytest.mark.parametrize(
        ("section", "field", "value", "says"),
        [
            (
                "window",
                "trigger_every",
                600,
                "window.trigger_every = 600: has no unit, and would mean 600 milliseconds; write trigger_every = "
                '"600ms", or trigger_every = "10m" for 600 seconds',
            ),
            ("window", "length", 600.0, "window.length = 600.0: has no unit, and would mean 600 milliseconds"),
            ("window", "length", 1.5, 'window.length = 1.5: has no unit; write length = "15m", with ms, s, m, h, d or w'),
            ("worker", "session_timeout", 10, 'write session_timeout = "10ms", or session_timeout = "10s" for 10 seconds'),
            ("topics", "retention", 5, 'topics.retention = 5: has no unit, and would mean 5 milliseconds'),
            (
                "start",
                "first_window",
                1_767_225_600,
                "start.first_window = 1767225600: would mean 1970-01-21T10:53:45.600Z, in milliseconds since 1970; write "
                'first_window = "2026-01-01T00:00:00Z" if these are seconds',
            ),
            ("start", "from", 1_767_225_600_000, 'write from = "2026-01-01T00:00:00Z"'),
        ],
        ids=str,
    )  # fmt: skip
    def test_are_refused_with_what_they_would_have_meant(
        self, tmp_path: Path, section: str, field: str, value: float, says: str
    ) -> None:
        [line] = refused(tmp_path, merged(HISTOGRAM, {section: {field: value}}))
        assert says in line

    def test_a_program_gives_ints_of_milliseconds(self) -> None:
        found = settings_from(merged(HISTOGRAM, {"window": {"trigger_every": 900_000}}), environ={})
        assert found.config_digest() == changed().config_digest()

    def test_a_section_inside_a_section_too(self, tmp_path: Path) -> None:
        registry = {"format": "avro", "registry": {"url": "http://r:1", "patience": 7}}
        [line] = refused(tmp_path, merged(HISTOGRAM, {"input": registry}))
        assert line.startswith("input.registry.patience = 7: has no unit")

    def test_variables_are_texts_and_need_a_unit_as_well(self, tmp_path: Path) -> None:
        [line] = refused(tmp_path, HISTOGRAM, {"SUSURRUS__WINDOW__LENGTH": "600"})
        assert line == 'window.length = "600": has no unit; write "600ms", or "10m" for 600 seconds'
        [line] = refused(tmp_path, HISTOGRAM, {"SUSURRUS__WINDOW": '{"length": 600}'})
        assert line.startswith("window.length = 600: has no unit")

    def test_nothing_and_texts_are_fine(self, tmp_path: Path) -> None:
        window = {"allowed_lateness": 0, "length": "1d", "trigger_every": "15m"}
        assert loaded(tmp_path, merged(HISTOGRAM, {"window": window})).config_digest() == changed().config_digest()


class TestWithoutEffect:
    REFUSED = (
        (
            merged(HISTOGRAM, {"privacy": {"strategy": "dp-sqlp"}}),
            {"privacy": {"closing": {"gamma": 0.5}}},
            "privacy.closing",
            "the section [privacy.closing]",
        ),
        (
            HISTOGRAM,
            {"window": {"trigger_every": "1d"}, "privacy": {"closing": {"lag": 3}}},
            "privacy.closing",
            "the section [privacy.closing]",
        ),
        (HISTOGRAM, {"clock": {"kind": "producer", "grace": "1s"}}, "clock.grace", 'the line grace = "1s" of [clock]'),
        (REPLAY, {"clock": {"idle_grace": "2m"}}, "clock.idle_grace", 'the line idle_grace = "2m" of [clock]'),
        (STREAM, {"budget": {"epsilon": 9.0, "delta": 1e-6}}, "budget", "the section [budget]"),
        (LOCAL, {"budget": {"epsilon": 9.0, "delta": 1e-6}}, "budget", "the section [budget]"),
        (STREAM, {"clock": {"idle_grace": "2m"}}, "clock.idle_grace", 'the line idle_grace = "2m" of [clock]'),
        (STREAM, {"topics": {"retention": "7d"}}, "topics.retention", 'the line retention = "7d" of [topics]'),
        (LOCAL, {"window": {"publication_pad": "5s"}}, "window.publication_pad", 'the line publication_pad = "5s"'),
    )
    KEPT = (
        (HISTOGRAM, {"clock": {"max_ahead": "2h"}}, "clock.max_ahead"),
        (HISTOGRAM, {"clock": {"max_future": "2h"}}, "clock.max_future"),
        (HISTOGRAM, {"input": {"time_unit": "s"}}, "input.time_unit"),
        (
            HISTOGRAM,
            {"keys": {"declared": ["/"], "discover": False, "minimum_users": 4}},
            "keys.minimum_users",
        ),
        (STREAM, {"stream": {"horizon": 1000}}, "stream.horizon"),
        (PAK, {"stream": {"fanout": 4}}, "stream.fanout"),
        (STREAM, {"window": {"length": "2d"}}, "window.length"),
        (LOCAL, {"input": {"user": "u"}}, "input.user"),
    )

    @pytest.mark.parametrize(("base", "change", "path", "line"), REFUSED, ids=str)
    def test_is_refused_with_the_line_to_delete_and_deleting_it_changes_no_digest(
        self, base: dict[str, Any], change: dict[str, Any], path: str, line: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data = merged(base, change)
        with pytest.raises(ConfigurationError) as caught:
            settings_from(data, environ={})
        [found] = str(caught.value).splitlines()
        assert found.startswith(f"{path}: has no meaning for ")
        assert f"; delete {line}" in found
        assert ", or choose " in found
        with monkeypatch.context() as patch:  # as it ran before it was refused
            patch.setattr("susurrus.agents.config.idle.findings", lambda settings: ())
            before = settings_from(data, environ={}).config_digest()
        section, _, field = path.partition(".")
        deleted = (
            {**data, section: {n: v for n, v in data[section].items() if n != field}}
            if field
            else merged(data, {section: None})
        )
        assert settings_from(deleted, environ={}).config_digest() == before

    @pytest.mark.parametrize(("base", "change", "path"), KEPT, ids=str)
    def test_is_warned_of_where_the_digest_covers_it(
        self, base: dict[str, Any], change: dict[str, Any], path: str
    ) -> None:
        ours, plain = settings_from(merged(base, change), environ={}), settings_from(base, environ={})
        assert ours.config_digest() != plain.config_digest()  # so a pipeline that runs must keep it
        [found] = ours.findings()
        assert (found.subject, found.level) == ("settings", "warning")
        assert found.text.startswith(f"{path}: has no effect with ")
        assert found.action.startswith("leave it out of a new pipeline, or choose ")
        assert found.action.endswith("keep it in one that has run, because the digest covers it")
        assert list(plain.findings()) == []

    def test_a_default_that_is_written_out_is_harmless(self) -> None:
        written = {
            "clock": {"kind": "producer", "grace": "5s", "idle_grace": "60s"},
            "privacy": {"strategy": "toeplitz", "closing": {"lag": 1}},
        }
        found = settings_from(merged(HISTOGRAM, written), environ={})
        assert (
            found.config_digest()
            == changed(clock={"kind": "producer"}, privacy={"strategy": "toeplitz"}).config_digest()
        )

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_every_strategy_takes_its_own_section_and_no_other(self, strategy: str) -> None:
        given = merged(HISTOGRAM, {"privacy": {"strategy": strategy, "closing": {"gamma": 0.5}}})
        if strategy == "closing":
            assert settings_from(given, environ={}).plan().parameters.gamma == 0.5
        else:
            with pytest.raises(ConfigurationError, match=r'privacy\.closing: .*or choose privacy.strategy = "closing"'):
                settings_from(given, environ={})

    def test_a_registry_that_nobody_asks_is_warned_of(self) -> None:
        ours = settings_from(merged(HISTOGRAM, {"output": {"registry": {"url": "http://r:1"}}}), environ={})
        [found] = ours.findings()
        assert found.text == 'output.registry: is not asked with output.format = "json"'
        assert found.action.startswith('choose output.format = "avro"')


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"columns": [{"name": "a"}, {"name": "b", "bond": 1}]}, 'column 2 ("b"): bond: unknown field; did you mean "bound"?'),
        ({"columns": [{"name": "b", "bound": -1}]}, 'column 1 ("b"): bound = -1: must be greater than 0'),
        ({"columns": [{"kind": "count"}]}, "column 1: name: is missing; add it"),
        ({"columns": [{"name": "a", "kind": "max"}]}, "kind = \"max\": use 'count', 'users', 'sum', 'mean', 'variance', "),
        ({"input": {"key": ["url", 3]}}, "input.key, number 2 = 3: write a text in quotes"),
        ({"keys": {"declared": ["a", {"b": 1}]}}, "keys.declared, number 2"),
    ],
    ids=str,
)  # fmt: skip
def test_people_count_from_one(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        settings_from(merged(HISTOGRAM, change), environ={})
    assert says in str(caught.value)
