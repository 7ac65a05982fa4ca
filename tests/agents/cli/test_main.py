"""The command line: what it prints where, and how it fails."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from susurrus.agents.cli import main as cli
from susurrus.agents.cli.console import DEFECT, FAILED
from susurrus.agents.config.kafka_properties import librdkafka
from susurrus.agents.kafka.embedded import EmbeddedBroker
from susurrus.agents.operations.compiled import finding
from susurrus.agents.pipelines import load_settings
from susurrus.mechanisms.errors import ReplayMismatch
from susurrus.mechanisms.histogram.registry import build_strategy
from tests.agents.released import publish, rows, said, settings

CONFIG = """
[pipeline]
name = "page-views"
prefix = "t"
[kafka]
bootstrap_servers = "{servers}"
embedded = true
[input]
topic = "raw"
user = "host"
key = ["url"]
[window]
trigger_every = "6h"
[privacy]
epsilon = 6.0
delta = 1e-9
"""
runner = CliRunner(env={"COLUMNS": "100", "TERM": "dumb"})


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "p.toml"
    path.write_text(CONFIG.format(servers="127.0.0.1:1"), encoding="utf-8")
    return path


def one_line(text: str) -> str:
    return " ".join(re.sub("[│╭╮╰╯─]", " ", text).split())


def outcome_of(function: Callable[[], None]) -> Result:
    """Of a command that calls the function."""
    app = typer.Typer(cls=cli.Guarded)
    app.command()(function)
    app.callback()(cli.main)
    return runner.invoke(app, [function.__name__])


def printed(*arguments: str, **environ: str) -> str:
    """What a command that ends well prints."""
    result = runner.invoke(cli.app, arguments, env=environ)
    assert result.exit_code == 0, result.output
    return one_line(result.output)


class TestHelp:
    def test_every_command_is_listed(self) -> None:
        result = runner.invoke(cli.app, ["--help"])
        assert result.exit_code == 0
        for command in ("demo", "worker", "topics", "config", "watch", "status"):
            assert re.search(rf"^\W*{command} ", result.output, re.MULTILINE), command

    @pytest.mark.parametrize("command", ["demo", "worker", "topics create", "config check", "watch", "status"])
    def test_every_command_explains_itself(self, command: str) -> None:
        assert runner.invoke(cli.app, [*command.split(), "--help"]).exit_code == 0

    def test_version(self) -> None:
        version, loops = runner.invoke(cli.app, ["--version"]).output.splitlines()
        assert version.startswith("susurrus ")
        assert loops == str(finding())


def loaded_by(*arguments: str, **environ: str) -> set[str]:
    """The modules that a call of the program loads: packages of others by their first name, and all of ours."""
    code = (
        "import atexit, sys\n"
        "from susurrus.agents.cli.main import app\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "app(prog_name='susurrus')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout
    return {name if name.startswith("susurrus") else name.split(".")[0] for name in done.stderr.split()}


@pytest.mark.parametrize(
    ("arguments", "environ"),
    [
        (["--help"], {}),
        (["--version"], {}),
        (["config", "--help"], {}),
        (["ledger", "--help"], {}),
        ([], {"_SUSURRUS_COMPLETE": "complete_bash", "COMP_WORDS": "susurrus config ", "COMP_CWORD": "2"}),
    ],
)
def test_a_list_of_commands_loads_none_of_them(arguments: list[str], environ: dict[str, str]) -> None:
    loaded = loaded_by(*arguments, **environ)
    assert "typer" in loaded
    heavy = {
        "numpy",
        "scipy",
        "duckdb",
        "confluent_kafka",
        "faust",
        "aiokafka",
        "rocksdict",
        "cryptography",
    }
    assert not loaded & heavy
    commands = {f"susurrus.agents.cli.{entry.module}" for entry in cli.COMMANDS if entry.module}
    assert not loaded & commands
    assert len([name for name in loaded if name.startswith("susurrus.")]) < 25


def test_a_check_loads_no_faust_and_no_other_command() -> None:
    loaded = loaded_by("config", "check", "--help")
    assert "susurrus.agents.cli.config" in loaded
    assert "faust" not in loaded
    assert "susurrus.agents.cli.init" not in loaded


def test_to_make_a_secret_loads_no_pipeline(tmp_path: Path) -> None:
    loaded = loaded_by("config", "secret", str(tmp_path / "noise.secret"))
    assert "susurrus.agents.cli.secret" in loaded
    assert not loaded & {"numpy", "scipy", "confluent_kafka"}


class TestFailure:
    def test_one_panel_on_standard_error_code_2_no_traceback(self, config: Path) -> None:
        config.write_text(config.read_text() + "[widow]\nlength = '1d'\n")
        result = runner.invoke(cli.app, ["config", "check", str(config)])
        assert result.exit_code == FAILED
        assert result.stdout == ""
        assert 'widow: unknown field; did you mean "window"?' in one_line(result.stderr)
        assert "Traceback" not in result.stderr

    def test_verbose_adds_the_traceback(self) -> None:
        result = runner.invoke(cli.app, ["--verbose", "config", "check", "/nowhere"])
        assert result.exit_code == FAILED
        assert "Traceback" in result.stderr
        assert "no such file" in one_line(result.stderr)

    @pytest.mark.parametrize(
        ("error", "code", "words"),
        [
            (
                ReplayMismatch("trigger=3 differs", "restore the raw log"),
                FAILED,
                "published data would change trigger=3",
            ),
            (KeyError("x"), DEFECT, "This is a defect"),
        ],
    )
    def test_every_error_has_its_panel(self, error: Exception, code: int, words: str) -> None:
        def fails() -> None:
            raise error

        result = outcome_of(fails)
        assert result.exit_code == code
        assert words in one_line(result.stderr)

    def test_a_broker_that_is_not_there_is_an_error_of_the_operator(self, config: Path) -> None:
        config.write_text(config.read_text() + "[kafka.properties]\nsocket.timeout.ms = 1000\n")

        def unreachable() -> None:
            from confluent_kafka.admin import AdminClient

            AdminClient({**librdkafka(load_settings(config, {}).kafka), "log_level": 2}).list_topics(timeout=0.5)

        result = outcome_of(unreachable)
        assert result.exit_code == FAILED
        assert "kafka.bootstrap_servers" in one_line(result.stderr)

    def test_commands_need_a_configuration(self) -> None:
        for command in (["worker"], ["watch"], ["status"], ["topics", "check"]):
            result = runner.invoke(cli.app, command)
            assert result.exit_code == FAILED
            assert "--config: is missing" in one_line(result.stderr)

    def test_a_worker_without_a_secret_refuses(self, config: Path) -> None:
        result = runner.invoke(cli.app, ["worker", "--config", str(config)])
        assert result.exit_code == FAILED
        assert "no noise secret" in one_line(result.stderr)


class TestConfig:
    def test_check_says_what_it_means(self, config: Path) -> None:
        text = printed("config", "check", str(config))
        assert "4 triggers 6h apart" in text
        assert "t.page-views.histogram" in text
        assert "factor of at most e^6" in text
        assert "no noise secret" in text

    @pytest.mark.parametrize("strategy", ["toeplitz", "closing", "dp-sqlp"])
    def test_check_says_what_it_costs(self, config: Path, strategy: str) -> None:
        environ = {"SUSURRUS__PRIVACY__STRATEGY": strategy}
        text = printed("config", "check", str(config), **environ)
        described = build_strategy(load_settings(config, environ).plan()).describe()
        assert "appear from about" in text
        if strategy == "toeplitz":
            [values] = described["values"].values()
            assert f"± {1.96 * values['std_first']:.3g} on" in text
            assert f"to {described['selection']['threshold_last']:.0f} at the last" in text
        if strategy == "closing":
            closing = described["closing"]
            said = re.search(r"keys still missing appear from about (\d+) users on, if they come steadily", text)
            assert said is not None
            # Each user adds 1 to the lists' statistic, and less than 1 to the filter's.
            assert closing["threshold"] / (1 + closing["filter_weight"]) < int(said[1]) < closing["threshold"]
        else:
            assert "keys still missing" not in text
        if strategy == "closing":
            return  # has nothing to weigh where all keys are declared
        declared = {**environ, "SUSURRUS__KEYS__DISCOVER": "false", "SUSURRUS__KEYS__DECLARED": '["a"]'}
        text = printed("config", "check", str(config), **declared)
        assert "± " in text
        assert "appear from about" not in text

    def test_check_says_which_strategy_runs_and_why(self, config: Path) -> None:
        text = printed("config", "check", str(config))
        assert "strategy closing, the default: windows have 4 triggers, and a column counts users" in text
        assert "consider toeplitz, to read a few popular keys: standard error" in text
        assert text.count("consider ") == 2
        text = printed("config", "check", str(config), SUSURRUS__BOUNDS__MAX_RECORDS_PER_KEY="2")
        assert "strategy toeplitz, the default: no column counts users" in text
        assert "consider" not in text
        text = printed("config", "check", str(config), SUSURRUS__PRIVACY__STRATEGY="closing")
        assert "strategy closing, as configured" in text
        assert "consider" not in text

    def test_check_shows_expressions_as_they_are_and_tells_names_from_texts(self, config: Path) -> None:
        where = 'where = "regexp_matches(url, \'[a-z]+\') AND city = \'New York\' AND \\"user agent\\" = \\"Lynx 2\\""'
        config.write_text(config.read_text().replace("[input]", f"[input]\n{where}"))
        text = printed("config", "check", str(config))
        assert "regexp_matches(url, '[a-z]+')" in text  # no markup
        assert 'fields read url, city, "user agent", "Lynx 2" (by expressions' in text
        assert "texts '[a-z]+', 'New York' (in expressions)" in text
        assert """note: input.where reads a field called "Lynx 2", because names stand in double quotes""" in text

    def test_check_goes_on_without_the_passwords_and_says_so(self, config: Path) -> None:
        tls = '"security.protocol" = "SSL"\n"ssl.ca.location" = "/nowhere/ca.pem"\n"ssl.key.password" = { file = "/nowhere/p" }\n'
        config.write_text(config.read_text() + "[kafka.properties]\n" + tls)
        text = printed("config", "check", str(config))
        assert 'not here: kafka.properties."ssl.key.password": cannot read file="/nowhere/p"' in text
        assert "not here: kafka.properties: TLS files cannot be loaded" in text
        assert runner.invoke(cli.app, ["topics", "check", "--config", str(config)]).exit_code == FAILED

    def test_check_refuses_what_the_mechanism_refuses(self, config: Path) -> None:
        config.write_text(config.read_text().replace("6h", "1s"))
        result = runner.invoke(cli.app, ["config", "check", str(config)])
        assert result.exit_code == FAILED
        assert "triggers=86400" in one_line(result.stderr)

    def test_the_schema_is_json_and_documents_every_field(self) -> None:
        schema = json.loads(runner.invoke(cli.app, ["config", "schema"]).stdout)
        assert "from" in schema["$defs"]["StartSettings"]["properties"]
        for section in schema["$defs"].values():
            for name, field in section["properties"].items():
                assert field.get("description") or "$ref" in field, name

    def test_a_secret_is_made_once(self, tmp_path: Path) -> None:
        path = tmp_path / "noise"
        result = runner.invoke(cli.app, ["config", "secret", str(path)])
        assert result.exit_code == 0
        assert path.read_text().strip() not in result.output
        assert runner.invoke(cli.app, ["config", "secret", str(path)]).exit_code == FAILED


@pytest.fixture(scope="module")
def released() -> Iterator[str]:
    """An embedded broker that holds one released trigger."""
    with EmbeddedBroker() as broker:
        made = settings(broker.bootstrap_servers)
        for topic in ("histogram", "progress", "ledger", "by-user", "bounded"):
            broker.create(made.topic(topic))
        broker.create("raw")
        publish(made, {0: rows(4, {b'"/a"': 120, b'"/b"': 80})}, [said(4, 2)])
        yield broker.bootstrap_servers


class TestWatch:
    @pytest.fixture
    def live(self, tmp_path: Path, released: str) -> Path:
        path = tmp_path / "p.toml"
        path.write_text(CONFIG.format(servers=released), encoding="utf-8")
        return path

    def test_once_prints_the_newest_complete_trigger(self, live: Path) -> None:
        result = runner.invoke(cli.app, ["watch", "--config", str(live), "--once"])
        assert result.exit_code == 0, result.output
        assert re.search(r"/a +120 +5 +█", result.stdout)
        assert "final · 2 keys published" in result.stdout

    def test_export_writes_a_file(self, live: Path, tmp_path: Path) -> None:
        output = tmp_path / "h.csv"
        result = runner.invoke(cli.app, ["watch", "-c", str(live), "--export", "csv", "-o", str(output)])
        assert result.exit_code == 0, result.output
        assert result.stdout == ""
        assert "2 rows written" in result.stderr
        assert (
            output.read_text()
            .splitlines()[0]
            .startswith('"window_start","window_end","trigger","of_triggers","trigger_time","key","url","visits"')
        )

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (["--export", "csv"], "belong together"),
            (["--window", "yesterday", "--once"], '--window="yesterday"'),
            (["--window", "1999-01-01", "--once"], "nothing is released of the window 1999-01-01T00:00:00Z"),
        ],
    )
    def test_what_cannot_be_shown_is_said(self, live: Path, options: list[str], words: str) -> None:
        result = runner.invoke(cli.app, ["watch", "-c", str(live), *options])
        assert result.exit_code == FAILED
        assert words in one_line(result.stderr)

    def test_status_of_a_pipeline_without_workers(self, live: Path) -> None:
        result = runner.invoke(cli.app, ["status", "-c", str(live)])
        assert result.exit_code == 1, result.output
        text = one_line(result.stdout)
        assert "not started yet" in text
        assert "route 0-3; bound 0-3; release 0-3: missing" in text
