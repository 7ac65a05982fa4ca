"""Dashboard, alert rules and the monitoring profile of the compose file fit what a worker exports.

What needs Debian's package prometheus (promtool, and Prometheus itself) or Docker is skipped where they are not installed, and the
summary says so.
"""

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml

from deploy.monitoring import dashboard
from susurrus.agents.broker.leash import ends_with_us
from susurrus.agents.broker.network import free_ports
from susurrus.agents.operations.metrics import STATES
from susurrus.agents.runtime.metrics import OUTCOMES
from susurrus.topics.records.reason import Reason
from tests import broker
from tests.agents.operations import documented
from tests.broker import Broker, wait_for
from tests.pipeline import Pipeline, archive_topic, produce, web_log
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "deploy" / "monitoring"
DASHBOARD = json.loads(dashboard.FILE.read_text())
RULES: list[dict[str, Any]] = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"][0]["rules"]
RULE_TESTS: list[dict[str, Any]] = yaml.safe_load((MONITORING / "alerts_test.yml").read_text())["tests"]
SHOWN = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]
EXPRESSIONS = [*SHOWN, *(rule["expr"] for rule in RULES)]

OF_PROMETHEUS = {"job", "instance"}
PROCESS = {"process_resident_memory_bytes", "process_open_fds", "process_max_fds"}
VALUES = {
    "state": set(STATES),
    "outcome": set(OUTCOMES),
    "stage": {stage.name for stage in documented.STAGES},
    "total": {name for stage in documented.STAGES for name in stage.counted},
    "reason": {reason.name for reason in Reason},
    "job": {"susurrus"},
}


def tool(name: str) -> str:
    """The path of a program, or a skip that the summary of the run shows."""
    found = shutil.which(name)
    if found is None:
        reason = f"{name} is not installed, so the files in deploy/monitoring were not tried with it"
        broker.missing[reason] = broker.missing.get(reason, 0) + 1
        pytest.skip(reason)
    return found


def series() -> dict[str, tuple[str, set[str]]]:
    """Every series that Prometheus has of a worker: name -> (type, labels)."""
    found: dict[str, tuple[str, set[str]]] = {name: ("gauge", set()) for name in {*PROCESS, "up"}}
    for name, (kind, labels) in documented.metrics().items():
        if kind == "histogram":
            for suffix in ("bucket", "count", "sum"):
                found[f"{name}_{suffix}"] = "counter", labels | ({"le"} if suffix == "bucket" else set())
        else:
            found[name] = kind, labels
    return found


def parsed(expression: str) -> promql.Expr:
    """By a parser of PromQL; what Grafana fills in is filled in."""
    return promql.parse(expression.replace("$__rate_interval", "5m").replace("$pipeline", ".*"))


def problems(expression: str) -> Iterator[str]:
    """What an expression says that no worker exports, and counters without a rate or rates of something else."""
    known = series()
    rated: set[str] = set()
    found: list[tuple[promql.VectorSelector, bool]] = []

    def visit(node: promql.Expr) -> None:
        if isinstance(node, promql.Call) and node.func.name in ("rate", "increase"):
            rated.update(str(each.vector_selector) for each in node.args if isinstance(each, promql.MatrixSelector))
        if isinstance(node, promql.VectorSelector):
            found.append((node, str(node) in rated))

    promql.walk(parsed(expression), visit)
    assert found
    for selector, is_rated in found:
        kind, labels = known.get(str(selector.name), ("", set()))
        if not kind:
            yield f"{selector.name} is not exported"
            continue
        # What the log of charges holds outlives the workers, so its counters mean something by themselves.
        if (kind == "counter" and "_privacy_" not in str(selector.name)) != is_rated:
            yield f"{selector.name} is a {kind}"
        for matcher in selector.matchers.matchers:
            if matcher.name not in labels | OF_PROMETHEUS:
                yield f"{selector.name} has no label {matcher.name}"
            for value in matcher.value.split("|"):
                if matcher.name in VALUES and value not in VALUES[matcher.name]:
                    yield f"{matcher.name} is never {value}"


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_asks_for_what_is_exported(expression: str) -> None:
    assert list(problems(expression)) == []


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("rate(susurrus_no_such_total[5m])", "susurrus_no_such_total is not exported"),
        ("susurrus_stage_total", "susurrus_stage_total is a counter"),
        ("rate(susurrus_store_bytes[5m])", "susurrus_store_bytes is a gauge"),
        ('sum(susurrus_store_bytes{user="x"})', "susurrus_store_bytes has no label user"),
        ('susurrus_partition_state{state=~"stalled|asleep"}', "state is never asleep"),
        ('increase(susurrus_stage_total{total="lost"}[5m])', "total is never lost"),
    ],
)
def test_an_expression_that_asks_for_something_else_is_noticed(expression: str, problem: str) -> None:
    assert list(problems(expression)) == [problem]


# ---- the dashboard ---------------------------------------------------------------------------------------------------


def test_the_dashboard_is_what_its_program_writes() -> None:
    assert dashboard.FILE.read_text() == dashboard.build(), "run deploy/monitoring/dashboard.py"


def test_the_dashboards_numbers_and_places_are_its_own() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) < 24


def test_the_dashboard_shows_almost_everything() -> None:
    """A metric that no panel and no alert uses should have a reason."""
    used = {name for name in series() if any(re.search(rf"\b{name}\b", text) for text in EXPRESSIONS)}
    unused = {name for name in documented.metrics() if not any(each.startswith(name) for each in used)}
    assert unused == {
        "susurrus_partition_input_info",  # for queries of one's own that name the topic of a source
        "susurrus_partition_position",  # for someone who looks for a record
        "susurrus_partition_seconds_since_commit",  # of streams, whose events may be rare
        "susurrus_privacy_delta_charged_total",
        "susurrus_privacy_windows_charged_total",
        "susurrus_release_evidence_windows",  # the configuration says it
        "susurrus_stage_committed",  # to compare the stages with each other
        "susurrus_worker_generation",
    }


# ---- alerts ----------------------------------------------------------------------------------------------------------


def test_every_alert_says_how_bad_it_is_and_what_to_do() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["alert"].startswith("Susurrus")
        assert rule["labels"].keys() == {"severity"}
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}
        assert all(text.endswith(".") for text in rule["annotations"].values())


def test_no_alert_tells_an_exact_total() -> None:
    """Only lags and the budget are told, which are public or a number of intervals."""
    telling = {rule["alert"] for rule in RULES if "$value" in str(rule["annotations"])}
    assert telling == {
        "SusurrusReleaseLate",
        "SusurrusBudgetNearlySpent",
        "SusurrusBudgetEndsSoon",
        "SusurrusWindowsSkipped",
    }


def test_every_alert_is_tested_firing_and_silent() -> None:
    tried = [(each["alertname"], bool(each["exp_alerts"])) for test in RULE_TESTS for each in test["alert_rule_test"]]
    names = {rule["alert"] for rule in RULES}
    assert {name for name, fires in tried if fires} == names
    assert {name for name, fires in tried if not fires} == names


@pytest.mark.parametrize(
    "command",
    [
        ("check", "rules", "alerts.yml"),
        ("check", "config", "prometheus.yml"),
        ("test", "rules", "alerts_test.yml"),
    ],
    ids=" ".join,
)
def test_promtool_accepts(command: tuple[str, ...]) -> None:
    done = subprocess.run(
        [tool("promtool"), *command], cwd=MONITORING, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stdout + done.stderr


# ---- the compose file ------------------------------------------------------------------------------------------------


def test_the_monitoring_profile_is_confined_and_finds_its_files() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    ours = {name: each for name, each in compose["services"].items() if each.get("profiles") == ["monitoring"]}
    assert set(ours) == {"prometheus", "grafana"}
    for name, service in ours.items():
        assert re.fullmatch(rf"\w+/{name}:v?\d+\.\d+\.\d+@sha256:[0-9a-f]{{64}}", service["image"])
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        files, own = service["volumes"]
        assert files.startswith("./deploy/monitoring:")
        assert files.endswith(":ro")
        assert own.split(":")[0] in compose["volumes"]
    (job,) = yaml.safe_load((MONITORING / "prometheus.yml").read_text())["scrape_configs"]
    (workers,) = job["dns_sd_configs"]
    settings = (ROOT / "deploy" / "compose" / "pipeline.toml").read_text()
    assert job["job_name"] == "susurrus"  # alerts.yml asks for it
    assert workers["names"] == ["worker"]
    assert "worker" in compose["services"]
    assert f"web_port = {workers['port']}" in settings


def test_grafana_finds_source_and_dashboard() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    service = compose["services"]["grafana"]
    mounted = service["volumes"][0].split(":")[1]
    folder = service["environment"]["GF_PATHS_PROVISIONING"]
    provisioning = MONITORING / Path(folder).relative_to(mounted)
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "susurrus.yml").read_text())["providers"]
    home = service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert provider["options"]["path"] == home
    assert (MONITORING / Path(home).relative_to(mounted)) == dashboard.FILE


def test_compose_accepts_the_profile() -> None:
    command = [tool("docker-compose"), "--profile", "monitoring", "config", "--services"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert {"prometheus", "grafana", "worker"} <= set(done.stdout.split())


# ---- Prometheus itself -----------------------------------------------------------------------------------------------


def asked(port: int, path: str, **parameters: str) -> Any:
    """What Prometheus' API answers."""
    with urllib.request.urlopen(
        f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=10
    ) as answer:
        return json.load(answer)["data"]


def test_prometheus_scrapes_a_worker_and_evaluates_everything(kafka: Broker, tmp_path: Path) -> None:
    program = tool("prometheus")
    raw = archive_topic(kafka, 2)
    produce(kafka, raw, web_log(2))
    pages, port = free_ports(2)
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(MONITORING / "alerts.yml")],
        "scrape_configs": [{"job_name": "susurrus", "static_configs": [{"targets": [f"127.0.0.1:{pages}"]}]}],
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    changes = {
        "worker": {"web_port": pages},
        "budget": {"epsilon": 60.0, "delta": 1e-6},
        "privacy": {"strategy": "closing"},  # it remembers, and some panels are about that
    }
    command = [
        program,
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (tmp_path / "prometheus.log").open("w") as log, Pipeline(kafka, tmp_path, raw, changes) as pipeline:
        prometheus = subprocess.Popen(command, stdout=log, stderr=log)
        ends_with_us(prometheus.pid)
        try:
            worker = pipeline.start()
            pipeline.wait()

            def up() -> bool:
                try:
                    return [each["health"] for each in asked(port, "targets")["activeTargets"]] == ["up"]
                except OSError:
                    return False

            wait_for(up, "Prometheus has scraped the worker")
            counted = 'sum(susurrus_stage_total{total="triggers"})'

            def triggers() -> float:
                return sum(float(each["value"][1]) for each in asked(port, "query", query=counted)["result"])

            wait_for(lambda: triggers() == 24 * 4, "Prometheus has the triggers of a day in four partitions")

            def rules() -> list[dict[str, Any]]:
                (group,) = asked(port, "rules")["groups"]
                found: list[dict[str, Any]] = group["rules"]
                return found

            wait_for(lambda: {rule["health"] for rule in rules()} == {"ok"}, "every rule is evaluated without an error")
            assert len(rules()) == len(RULES)
            assert [rule["name"] for rule in rules() if rule["state"] == "firing"] == []

            def empty() -> list[str]:
                filled = {each: each.replace("$__rate_interval", "1m").replace("$pipeline", ".*") for each in SHOWN}
                return [each for each, query in filled.items() if not asked(port, "query", query=query)["result"]]

            # No record is bad, the end of an archive's budget is no time of ours, and this budget does not renew. A rate needs two
            # scrapes.
            allowed = re.compile("dead_letters|budget_(ends|skips)_seconds")
            wait_for(lambda: all(allowed.search(each) for each in empty()), "every other panel has something to show")
            assert worker.stop() == 0
        finally:
            prometheus.terminate()
            prometheus.wait(30)
