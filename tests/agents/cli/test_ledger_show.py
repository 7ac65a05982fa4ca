"""`susurrus ledger show`: as a terminal has it, as JSON, and what it says where there is nothing to show."""

import contextlib
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mpmath
import pytest
import tomli_w
from rich.console import Console
from typer.testing import CliRunner

from susurrus.agents.cli.account import headline, picture
from susurrus.agents.cli.main import app
from susurrus.agents.kafka.access import Right, grant
from susurrus.agents.operations.account import account_of
from susurrus.agents.operations.status import collect
from susurrus.agents.pipelines import pipeline_of
from susurrus.mechanisms.guarantee import Guarantee
from susurrus.topics.charges import Charge
from tests.agents.cli.test_main import CONFIG, one_line
from tests.agents.operations.test_account import DAY, HOUR, NOW, charge, days, of_day, renewing, with_budget
from tests.agents.released import settings as base
from tests.broker import Broker, wait_for
from tests.guarded import Guarded
from tests.pipeline import Pipeline, archive_topic, produce, web_log

PROMISE = Guarantee(epsilon=2.0, delta=2e-6, mu=0.5, delta_gaussian=1e-6, delta_selection=1e-6)
GOLDEN = Path(__file__).with_name("golden")
HISTORY = [
    *[charge(paid.window - 50 * DAY, "older") for paid in days(1)],
    charge(NOW, "page-views/tune", mu=0.2),
    *[charge(20_000 * DAY + n * HOUR, "hourly", mu=0.1) for n in range(12)],
    *days(2, epoch="00" * 4),
    *days(3, epoch="ab" * 16),
]
CASES: dict[str, tuple[Sequence[Charge], dict[str, Any] | None]] = {
    "several": (HISTORY, {"epsilon": 8.0, "delta": 1e-4}),
    "spent": (days(14), {"epsilon": 8.0, "delta": 1e-4}),
    "no-budget": (days(30), None),
    "nothing": ([], {"epsilon": 8.0, "delta": 1e-4}),
    "renews": ([of_day(n) for n in range(-7, 1)], {"epsilon": 8.0, "delta": 1e-4, "per": "30d"}),
    "skips": ([of_day(n) for n in range(-14, -1)], {"epsilon": 8.0, "delta": 1e-4, "per": "30d"}),
}


def drawn(case: str, width: int) -> str:
    charges, budget = CASES[case]
    settings = base() if budget is None else renewing(**budget) if "per" in budget else with_budget(**budget)
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False)
    account = account_of(charges, settings, NOW, guarantee=PROMISE)
    console.print(picture(account, width))
    console.print(headline(account))
    assert isinstance(console.file, io.StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


@pytest.mark.parametrize("case", CASES)
def test_the_picture_at_eighty_columns(case: str) -> None:
    """After a change, write the files anew with `python -m tests.agents.cli.test_ledger_show`, and look at them."""
    assert drawn(case, 80) == (GOLDEN / f"ledger-{case}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("width", [50, 80, 100, 160])
def test_it_fits_every_terminal(case: str, width: int) -> None:
    text = drawn(case, width)
    assert max(map(len, text.splitlines())) <= width
    assert ("first" in text.split("\n\n")[1].split("\n")[0]) == (width >= 100)


def test_the_bar_and_the_burn_down_say_what_is_left() -> None:
    text = drawn("several", 80)
    share = account_of(HISTORY, with_budget(), NOW, guarantee=PROMISE).share
    assert share is not None
    [bar] = [line for line in text.splitlines() if "of the budget" in line]
    assert bar.count("█") == round(44 * share)
    assert f"{share:.1%} of the budget" in bar
    [burn] = [line.split()[1] for line in text.splitlines() if line.startswith("burn-down")]
    assert len(burn) == 44
    assert list(burn) == sorted(burn, reverse=True)
    assert (burn[0], burn[-1]) == ("█", "▁")


@pytest.mark.parametrize(
    ("kind", "section"),
    [
        ("local", "[local]\nbound = 1.0\nepsilon = 1.0\n"),
        (
            "stream",
            '[input]\ntopic = "raw"\n[stream]\nvalue = "v"\nbound = 1.0\nepsilon = 1.0\n',
        ),
    ],
)
def test_kinds_without_windows_say_where_their_promise_is(tmp_path: Path, kind: str, section: str) -> None:
    config = tmp_path / "p.toml"
    config.write_text(f'[pipeline]\nname = "m"\nkind = "{kind}"\n{section}')
    said = CliRunner().invoke(app, ["ledger", "show", "--config", str(config)])
    assert said.exit_code == 0, said.output
    assert f'pipeline.kind="{kind}": the promise is for each report or value' in one_line(said.stdout)
    assert "`susurrus config check` says what is promised" in one_line(said.stdout)
    found = json.loads(CliRunner().invoke(app, ["ledger", "show", "--json", "--config", str(config)]).stdout)
    assert (found["schema"], found["pipeline"], found["pipelines"]) == (1, "m", [])
    assert "no windows to charge" in found["reason"]


# ---- on a real broker ----------------------------------------------------------------------------------------------------


def show(config: Path, *options: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    result = CliRunner(env={"COLUMNS": "100"}).invoke(app, ["ledger", "show", "--config", str(config), *options])
    return result.exit_code, result.stdout, result.stderr


def configured(broker: Broker, directory: Path, **more: str) -> Path:
    config = directory / "p.toml"
    text = CONFIG.format(servers=broker.bootstrap_servers).replace("embedded = true", "")
    prefix = broker.new_prefix()
    config.write_text(
        text.replace('prefix = "t"', f'prefix = "{prefix}"') + f'\n[topics]\ncharges = "{prefix}.charges"\n'
    )
    return config


def test_where_there_is_no_log_of_charges_it_says_how_to_get_one(kafka: Broker, tmp_path: Path) -> None:
    config = configured(kafka, tmp_path)
    code, out, err = show(config)
    assert (code, out) == (2, "")
    assert 'charges": does not exist, so nothing was charged yet on this cluster; ' in one_line(err)
    assert "create it with `susurrus topics create --config ...`" in one_line(err)
    assert show(config, "--json")[:2] == (2, "")


def test_a_record_that_is_no_charge_is_told(kafka: Broker, tmp_path: Path) -> None:
    config = configured(kafka, tmp_path)
    prefix = config.read_text().partition('prefix = "')[2].partition('"')[0]
    kafka.create_topic(f"{prefix}.charges", 1, {"cleanup.policy": "compact"})
    producer = kafka.producer()
    producer.produce(f"{prefix}.charges", b'{"schema": 2}', key=b"charge/x")
    producer.flush(20)
    code, _, err = show(config)
    assert code == 2
    assert f'topic="{prefix}.charges": holds a record that is no charge' in one_line(err)
    assert "find out who else writes to this topic" in one_line(err)


def test_without_the_right_it_names_the_command_that_gives_it(guarded: Guarded, tmp_path: Path) -> None:
    config = configured(guarded.broker, tmp_path)
    prefix = config.read_text().partition('prefix = "')[2].partition('"')[0]
    guarded.broker.create_topic(f"{prefix}.charges", 1, {"cleanup.policy": "compact"})
    name = f"auditor-{prefix}"
    properties = tomli_w.dumps({"kafka": {"bootstrap_servers": guarded.password, "properties": guarded.new_user(name)}})
    text = config.read_text().replace("[kafka]", "").replace(f'bootstrap_servers = "{guarded.open}"', "")
    config.write_text(text + properties)
    code, _, err = show(config)
    assert code == 2, err
    assert f'the right Read on topic="{prefix}.charges" is missing; give it:' in one_line(err)
    assert f"--allow-principal User:{name} --operation Read --operation Describe --topic {prefix}.charges" in one_line(
        err
    )
    # That right, and the one that lets a client look for a coordinator, are enough to see the account.
    from confluent_kafka.admin import AclOperation

    grant(
        guarded.admin(),
        f"User:{name}",
        [Right("topic", f"{prefix}.charges", (AclOperation.READ, AclOperation.DESCRIBE))],
    )
    wait_for(lambda: show(config)[0] == 0, "the right is there")
    assert json.loads(show(config, "--json")[1])["spent"]["mu"] == 0.0


def mu_of(epsilon: float, delta: float) -> Any:
    """The shift of the Gaussian mechanism with this promise."""
    return mpmath.findroot(lambda mu: mpmath.log(delta_of(mu, epsilon) / delta), (0.01, 5), solver="anderson")


def delta_of(mu: Any, epsilon: Any) -> Any:
    return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


def test_two_pipelines_share_a_budget_and_the_account_is_the_hand_arithmetic(kafka: Broker, tmp_path: Path) -> None:
    """Four windows of one pipeline, then as many of the other as fit; by 50 digits."""
    raw = archive_topic(kafka, 2)
    produce(kafka, raw, web_log(2))
    prefix, total = kafka.new_prefix(), {"epsilon": 14.0, "delta": 1e-8}
    common: dict[str, Any] = {"budget": total, "window": {"length": "6h", "trigger_every": "6h"}}
    common["topics"] = {"charges": f"{prefix}.charges"}
    first = {**common, "pipeline": {"name": "first", "prefix": prefix}}
    second = {**common, "pipeline": {"name": "second", "prefix": prefix}, "privacy": {"epsilon": 4.0}}
    with contextlib.ExitStack() as stack, mpmath.workdps(50):
        one, two = (stack.enter_context(Pipeline(kafka, tmp_path, raw, data)) for data in (first, second))
        for pipeline in (one, two):
            found = json.loads(show(pipeline.config, "--json")[1])
            assert (found["spent"]["mu"], found["share_spent"], found["stop"]) == (
                0.0,
                0.0,
                None,
            )
        worker = one.start()
        one.wait(windows=4)
        assert worker.stop() == 0

        squares = {"first": mu_of(6, 5e-10) ** 2, "second": mu_of(4, 5e-10) ** 2}
        selection = mpmath.mpf(5e-10)  # of each window of either

        def spent(ours: int, theirs: int) -> Any:
            mu = mpmath.sqrt(ours * squares["first"] + theirs * squares["second"])
            return delta_of(mu, 14) + (ours + theirs) * selection

        fits = next(n for n in range(10) if spent(4, n + 1) > total["delta"])
        assert fits == 2
        account = json.loads(show(two.config, "--json")[1])
        assert (account["windows_left"], account["windows_left_at_pace"]) == (fits, fits)
        assert account["stop"] == f"1995-08-01T{6 * fits:02}:00:00Z"
        assert [row["windows"] for row in account["pipelines"]] == [0, 4]
        assert account["spent"]["delta_at_budget_epsilon"] == pytest.approx(float(spent(4, 0)), rel=1e-6)

        two.start()
        wait_for(lambda: "would be exceeded" in two.trouble(), "the budget stops the second")
        account = json.loads(show(two.config, "--json")[1])
        own, other = account["pipelines"]
        # The charge that was refused counts, and published nothing.
        assert (own["windows"], own["windows_beyond_budget"], other["windows"]) == (fits + 1, 1, 4)
        assert account["stop"] == f"1995-08-01T{6 * fits:02}:00:00Z"
        assert (account["windows_left"], account["windows_left_at_pace"], account["share_spent"]) == (0, 0, 1.0)
        assert own["newest"]["mu"] ** 2 == pytest.approx(float(squares["second"]), rel=1e-6)
        assert account["spent"]["delta_at_budget_epsilon"] == pytest.approx(float(spent(4, fits + 1)), rel=1e-6)
        mu = mpmath.sqrt(4 * squares["first"] + (fits + 1) * squares["second"])
        left = mpmath.mpf(total["delta"]) - (5 + fits) * selection
        epsilon = mpmath.findroot(lambda e: mpmath.log(delta_of(mu, e) / left), (5, 30), solver="anderson")
        assert account["spent"]["epsilon"] == pytest.approx(float(epsilon), abs=1e-5)
        published = {window for window, _ in two.progress()}
        assert len(published) == fits

        code, text, _ = show(two.config)
        assert code == 0
        assert f"the window of 1995-08-01T{6 * fits:02}:00:00Z was refused" in one_line(text).replace("01 T", "01T")
        assert "1 of second" in text
        status = CliRunner(env={"COLUMNS": "100"}).invoke(app, ["status", "--config", str(two.config)])
        assert "100% spent · 0 windows left" in status.stdout
        # The first has published its whole archive, so nothing of it is refused.
        finished = json.loads(show(one.config, "--json")[1])
        assert (finished["stop"], finished["pipelines"][0]["windows_beyond_budget"]) == (None, 0)
        found_account = collect(pipeline_of(one.settings)).account
        assert found_account is not None
        assert replace(found_account, at=0).as_json() == {**finished, "at": "1970-01-01T00:00:00Z"}


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name in CASES:
        (GOLDEN / f"ledger-{name}.txt").write_text(drawn(name, 80), encoding="utf-8")
