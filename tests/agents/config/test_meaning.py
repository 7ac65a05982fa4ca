"""What is said before a promise is made: its numbers against dp-accounting and mpmath, and when nothing is said."""

import logging
import re
from pathlib import Path
from typing import Any

import dp_accounting
import mpmath
import pytest
from dp_accounting.pld import PLDAccountant
from typer.testing import CliRunner

from susurrus.agents.cli.main import app
from susurrus.agents.config.meaning import cost, factor
from susurrus.agents.config.settings import Settings
from susurrus.agents.operations import worker
from susurrus.agents.pipelines import load_settings, pipeline_of, settings_from
from susurrus.agents.types.durations import format_duration
from susurrus.mechanisms.spend import Spend
from tests.agents.cli.test_main import CONFIG, one_line
from tests.agents.config.test_settings import changed

ARCHIVE = """
[clock]
kind = "replay"
until = "1995-08-02T00:00:00Z"
[start]
first_window = "1995-08-01T00:00:00Z"
"""
"""One window."""


def of(settings: Settings, users: int | None = None) -> list[str]:
    found = pipeline_of(settings).promise_findings(users)
    assert {(one.subject, one.level) for one in found} <= {("promise", "warning")}
    assert all(one.action for one in found)
    return list(map(str, found))


def other_kind(kind: str, **section: Any) -> Settings:
    data = {"pipeline": {"name": "m", "kind": kind}, kind: {"bound": 1.0, "epsilon": 1.0, **section}}
    if kind == "stream":
        data["input"] = {"topic": "raw"}
    return settings_from(data, environ={})


def numbers(text: str, *names: str) -> list[float]:
    found = [re.search(rf"\b{name} = ([0-9.e-]+[0-9])", text) for name in names]
    assert all(found), text
    return [float(match[1]) for match in found if match]


def test_without_a_budget_it_says_what_thirty_windows_cost() -> None:
    settings = changed()
    [text] = of(settings)
    assert text.startswith("[budget] is not set, so nothing stops the pipeline.")
    assert "active in 30 windows (30d)" in text
    assert "not by epsilon = 6;" in text
    assert text.endswith("; set [budget] to the total that you can answer for")
    promise = pipeline_of(settings).per_window()
    assert promise is not None
    epsilon, delta, mu = numbers(text, "epsilon", "delta", "mu")
    oracle = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=1e-4)
    oracle.compose(dp_accounting.GaussianDpEvent(1 / promise.mu), 30)
    assert delta == pytest.approx(30 * promise.delta)
    assert mu == pytest.approx(30**0.5 * promise.mu, rel=5e-3)
    assert epsilon == pytest.approx(oracle.get_epsilon(30 * (promise.delta - promise.delta_selection)), rel=5e-3)


def test_the_how_to_quotes_it() -> None:
    text = (Path(__file__).parents[3] / "docs" / "how-to" / "share-a-budget.md").read_text(encoding="utf-8")
    assert of(changed())[0] in one_line(text)


@pytest.mark.parametrize("windows", [1, 2, 30])
def test_the_cost_of_windows_against_eighty_digits(windows: int) -> None:
    promise = pipeline_of(changed()).per_window()
    assert promise is not None
    epsilon, delta, mu = cost(promise, windows)
    with mpmath.workdps(80):
        shift = mpmath.sqrt(windows) * mpmath.mpf(promise.mu)
        spent = mpmath.ncdf(shift / 2 - epsilon / shift) - mpmath.exp(epsilon) * mpmath.ncdf(
            -shift / 2 - epsilon / shift
        )
        left = windows * (mpmath.mpf(promise.delta) - mpmath.mpf(promise.delta_selection))
        assert float(spent / left) == pytest.approx(1, abs=1e-4)
        assert mu == pytest.approx(float(shift), rel=1e-9)
    assert delta == windows * promise.delta
    if windows == 1:
        assert epsilon == pytest.approx(promise.epsilon, abs=1e-4)


def test_with_a_budget_that_renews_it_says_how_many_windows_are_skipped_and_what_a_year_comes_to() -> None:
    settings = changed(budget={"epsilon": 20.0, "delta": 1e-7, "per": "30d"})
    [text] = of(settings)
    promise = pipeline_of(settings).per_window()
    assert promise is not None
    accountant, fits = PLDAccountant(), 0
    while float(accountant.get_delta(20.0)) + fits * promise.delta_selection <= 1e-7:
        fits += 1
        accountant.compose(dp_accounting.GaussianDpEvent(1 / promise.mu))
    fits -= 1
    assert f"30d touch 31 windows, and there is room for {fits}. So of every 31 windows {fits} are published" in text
    year = 11 * fits + min(fits, 366 - 11 * 31)
    assert f"In any 365d at most {year} windows are published." in text
    epsilon, delta = numbers(text.partition("protected by")[2], "epsilon", "delta")
    accountant = PLDAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(1 / promise.mu), year)
    assert delta == pytest.approx(13e-7)
    assert epsilon == pytest.approx(accountant.get_epsilon(13e-7 - year * promise.delta_selection), rel=0.01)
    assert "epsilon = 6" not in text


def test_with_room_for_every_window_of_a_period_nothing_is_skipped_and_a_year_still_costs() -> None:
    [text] = of(changed(budget={"epsilon": 60.0, "delta": 1e-6, "per": "10d"}))
    assert "has room for all 11 windows that 10d touch" in text
    assert "In any 365d at most 366 windows are published." in text


def test_with_a_budget_it_says_after_how_many_windows_it_stops() -> None:
    settings = changed(
        budget={"epsilon": 40.0, "delta": 1e-7},
        window={"length": "1h"},
        start={"first_window": "2026-01-01T00:00:00Z"},
    )
    [text] = of(settings)
    promise = pipeline_of(settings).per_window()
    assert promise is not None
    fits = 0
    while Spend().plus(promise, fits + 1).delta_total(40.0) <= 1e-7:
        fits += 1
    assert 24 < fits < 48
    assert f"the pipeline publishes {fits} windows (1d {fits - 24}h), fewer if others charge the raw topic" in text
    assert f"The window of 2026-01-02T{fits - 24:02}:00:00Z is the first that is not published." in text
    assert "the first that" not in of(changed(budget={"epsilon": 40.0, "delta": 1e-7}))[0]


def test_an_archive_stops_by_itself() -> None:
    def archive(until: str, **sections: Any) -> list[str]:
        clock = {"kind": "replay", "until": until}
        return of(changed(clock=clock, start={"first_window": "1995-08-01T00:00:00Z"}, **sections))

    assert archive("1995-08-02T00:00:00Z") == []
    assert "and the archive has 2 windows. A user who is active in 2 windows (2d)" in archive("1995-08-02T00:00:01Z")[0]
    assert "active in 30 windows (30d)" in archive("1996-08-01T00:00:00Z")[0]
    budget = {"epsilon": 12.0, "delta": 1e-7}
    assert archive("1995-08-03T00:00:00Z", budget=budget) == []
    assert "and then no more" in archive("1996-08-03T00:00:00Z", budget=budget)[0]


def test_a_large_epsilon_says_what_it_means() -> None:
    assert not any("privacy.epsilon" in text for text in of(changed(privacy={"epsilon": 10.0})))
    [text, _] = of(changed(privacy={"epsilon": 12.0}))
    assert text.startswith("privacy.epsilon = 12: the odds of any conclusion about one user")
    assert "up to e^12, about 160,000." in text
    assert "wrong in only 1 of 160,000 cases" in text


@pytest.mark.parametrize(
    ("epsilon", "text"),
    [(10.5, "36,000"), (12, "160,000"), (20, "490,000,000"), (30, "11,000,000,000,000"), (50, "10^22")],
)
def test_the_factor_is_two_digits_of_the_exponential(epsilon: float, text: str) -> None:
    assert factor(epsilon) == text
    value = float(text.replace(",", "")) if "^" not in text else 10.0 ** float(text[3:])
    assert value == pytest.approx(float(mpmath.exp(epsilon)), rel=0.05 if "^" not in text else 2)


def test_a_large_delta_and_the_number_of_users() -> None:
    def said(delta: float, users: int | None = None) -> list[str]:
        return [text for text in of(changed(privacy={"delta": delta}), users) if "privacy.delta" in text]

    assert said(1e-5) == []
    [text] = said(2e-5)
    assert text.startswith("privacy.delta = 2e-05: with this probability the promise may fail altogether")
    assert said(1e-6, 1_000_000) == []
    [text] = said(1e-6, 2_000_000)
    assert "privacy.delta = 1e-06, 2,000,000 users" in text
    assert "that is for 2 of them" in text
    assert "one over the number of users, 5e-07" in text
    assert len(said(1e-3, 10**6)) == 1  # one sentence about delta, not two


def test_local_reports_and_streams_say_what_many_cost() -> None:
    [text] = of(other_kind("local", epsilon=2.0))
    assert text.startswith("local.epsilon = 2: is for each report by itself, not for each user.")
    assert "30 reports of one user cost up to epsilon = 60 together" in text
    assert len(of(other_kind("local", epsilon=11.0))) == 2
    [text] = of(other_kind("stream"))
    assert "30 values of one user cost up to epsilon = 30 together" in text
    pak = {"method": "pak", "horizon": 10_000, "holdout": 512, "tail_start": 0.05, "epsilon": 8.0}
    assert len(of(other_kind("stream", **pak))) == 1  # delta = 2^-20 by default
    assert "stream.delta = 0.0001" in of(other_kind("stream", delta=1e-4, **pak))[0]
    assert "2,000,000 users" in of(other_kind("stream", **pak), 2_000_000)[0]


def test_a_worker_says_it_once_when_it_starts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Up to where it would make its application."""

    class Stop(Exception):
        pass

    def build(pipeline: object) -> None:
        raise Stop

    monkeypatch.setattr(worker, "build_app", build)
    monkeypatch.setattr(worker.logs, "configure", lambda level, form: None)
    pipeline = pipeline_of(changed(privacy={"epsilon": 12.0}, worker={"data_directory": str(tmp_path)}))
    with caplog.at_level(logging.INFO), pytest.raises(Stop):
        worker.run_worker(pipeline)
    said = [record for record in caplog.records if record.name == worker.__name__]
    [*said, last] = said
    assert [record.getMessage() for record in said] == list(map(str, pipeline.promise_findings()))
    assert {record.levelno for record in said} == {logging.WARNING}
    assert "the hot loops" in last.getMessage()


@pytest.mark.parametrize("ahead", ["0s", "1ms", "999ms"])
def test_an_event_time_that_may_not_be_ahead_of_the_stamp_loses_records(ahead: str) -> None:
    [_, text] = of(changed(input={"time": "at"}, clock={"max_future": ahead}))
    assert text.startswith(f'clock.max_future = "{ahead}", input.time = "at": ')
    assert text.endswith('; use minutes, which cost no privacy; the default is "5m"')
    default = changed().clock.max_future
    assert format_duration(default) == "5m"


def test_of_the_clock_of_events_nothing_is_said_by_default_or_where_the_stamp_is_the_time() -> None:
    assert len(of(changed(input={"time": "at"}))) == 1
    assert len(of(changed(input={"time": "at"}, clock={"max_future": "1s"}))) == 1
    assert len(of(changed(clock={"max_future": "1ms"}))) == 1  # a warning of the settings says that it has no effect


def test_rows_of_an_archive_that_kafka_would_delete_at_once_are_refused_by_config_check(tmp_path: Path) -> None:
    config = tmp_path / "p.toml"
    config.write_text(CONFIG.format(servers="127.0.0.1:1") + ARCHIVE)

    def checked(retention: str) -> Any:
        return CliRunner(env={"SUSURRUS__TOPICS__RETENTION": retention}).invoke(
            app, ["config", "check", "--config", str(config)]
        )

    assert checked("36500d").exit_code == 0
    refused = checked("7d")
    assert refused.exit_code == 2
    said = one_line(refused.stderr)
    assert 'topics.retention = "7d", but rows of the first window are stamped 1995-08-02T00:00:00Z' in said
    assert "leave it out" in said


def test_the_commands_show_the_same(tmp_path: Path) -> None:
    """In a panel and in a table, with exit code 0; --users only where it is given."""
    config = tmp_path / "p.toml"
    config.write_text(CONFIG.format(servers="127.0.0.1:1").replace("1e-9", "1e-4"))

    def printed(*arguments: str) -> str:
        result = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*arguments, "--config", str(config)])
        assert result.exit_code == 0, result.output
        assert max(map(len, result.stdout.splitlines())) <= 80
        return one_line(result.stdout)

    warnings = of(load_settings(config, {}))
    assert len(warnings) == 2
    checked = printed("config", "check")
    assert "Before you promise it" in checked
    explained = printed("explain").replace("warning ", "")
    for text in warnings:
        assert text in checked
        assert text in explained
    with_users = printed("config", "check", "--users", "1000000")
    assert "1,000,000 users: the promise may fail altogether" in with_users
    config.write_text(config.read_text().replace("1e-4", "1e-9") + ARCHIVE)
    assert "Before you promise it" not in printed("config", "check")
    assert "Before you promise it" not in printed("explain")


def test_remembered_keys_are_told_by_the_commands_where_there_are_any(tmp_path: Path) -> None:
    config = tmp_path / "p.toml"
    config.write_text(CONFIG.format(servers="127.0.0.1:1"))
    for least, sentences in ((0, 0), (1_200, 1)):
        config.write_text(CONFIG.format(servers="127.0.0.1:1") + f"[keys]\nremember = {least}\n")
        for arguments, sentence in (
            (["config", "check"], "keys of 1,200 users or more in a window's last row are public in the next window"),
            (
                ["explain"],
                "keys whose last row has at least 1,200 users are public from the next window's beginning, at no cost",
            ),
        ):
            result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*arguments, "--config", str(config)])
            assert result.exit_code == 0, result.output
            assert one_line(result.stdout).count(sentence) == sentences
            assert ("remembered" in result.stdout) == (sentences > 0)


def test_shares_that_follow_the_output_are_told_by_the_commands_where_they_do(tmp_path: Path) -> None:
    config = tmp_path / "p.toml"
    for more, follow in (
        ("[keys]\nremember = 6\n", True),
        ("[keys]\nremember = 0\n", False),
        ("[keys]\nremember = 6\n[privacy.closing]\nunknown_share = 0.2\n", False),
    ):
        config.write_text(CONFIG.format(servers="127.0.0.1:1") + more)
        for arguments, sentences in (
            (["config", "check"], ["follow how much of the window before had lasted, in tenths", "if all lasts"]),
            (["explain"], ["the more of a window's rows are of keys that it began with"]),
        ):
            result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*arguments, "--config", str(config)])
            assert result.exit_code == 0, result.output
            assert all((sentence in one_line(result.stdout)) == follow for sentence in sentences)


def test_evidence_over_windows_is_told_by_the_commands_where_there_is_any(tmp_path: Path) -> None:
    config = tmp_path / "p.toml"
    for windows, scales in ((1, ()), (2, (2,)), (4, (2, 4))):
        config.write_text(CONFIG.format(servers="127.0.0.1:1") + f"[keys]\nevidence_windows = {windows}\n")
        for arguments in (["config", "check"], ["explain"]):
            result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*arguments, "--config", str(config)])
            assert result.exit_code == 0, result.output
            said = one_line(result.stdout)
            for scale in (2, 4):
                assert (f"over {scale} windows keys that none of them publishes appear from" in said) == (
                    scale in scales
                )
        assert (f"what up to {windows} windows measured of a key adds up" in said) == (windows > 1)
