"""Kafka Connect writes `latest` into PostgreSQL: one row per window and key."""

import subprocess
from pathlib import Path

import pytest
from pyarrow import parquet

from susurrus.agents.broker.leash import ends_with_us
from susurrus.agents.broker.network import free_ports
from tests.broker import wait_for
from tests.recipes.conftest import RECIPES, Published, check_shown
from tests.recipes.postgres import postgres, query
from tests.recipes.programs import java_program, maven_project

pytestmark = [pytest.mark.shipped, pytest.mark.timeout(600)]  # the first run fetches and builds the program

FINAL = "SELECT count(*) FROM page_views WHERE trigger = of_triggers AND window_start < '1995-08-02'"
SMOOTHED = "SELECT values_visits_smoothed_estimate FROM page_views WHERE key = '/smoothed.html'"
GONE = "SELECT count(*) FROM page_views WHERE key = '/gone.html'"


def test_connect_upserts_the_newest_rows(published: Published, tmp_path: Path) -> None:
    with postgres() as port:
        plugins = maven_project("kafka-connect") / "plugins"
        (rest,) = free_ports(1)
        worker = published.here("kafka-connect/worker.properties")
        for shown, here in (
            ("localhost:8083", f"127.0.0.1:{rest}"),
            ("target/plugins", str(plugins)),
            ("/tmp/page-views.offsets", str(tmp_path / "offsets")),
        ):
            assert shown in worker
            worker = worker.replace(shown, here)
        (tmp_path / "worker.properties").write_text(worker, encoding="utf-8")
        sink = published.here("kafka-connect/sink.properties").replace("localhost:5432", f"127.0.0.1:{port}")
        (tmp_path / "sink.properties").write_text(sink, encoding="utf-8")

        wanted = parquet.read_table(published.export).num_rows
        program = java_program("kafka-connect", "org.apache.kafka.connect.cli.ConnectStandalone")
        command = [*program, str(tmp_path / "worker.properties"), str(tmp_path / "sink.properties")]
        log = tmp_path / "log"
        with log.open("wb") as file:
            connect = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
            ends_with_us(connect.pid)
        try:
            wait_for(lambda: f" {wanted}\n" in (query(port, FINAL) or ""), f"{wanted} rows of the last trigger")
            wait_for(lambda: " 3\n" in (query(port, SMOOTHED) or ""), "the next day's row, with its smoothed number")
            wait_for(lambda: " 0\n" in (query(port, GONE) or ""), "the row of the key that is hidden has gone")
        except TimeoutError as late:
            pytest.fail(f"{late}\n{log.read_text(errors='replace')[-4000:]}", pytrace=False)
        finally:
            connect.kill()
            connect.wait(30)
        everything = query(port, "SELECT count(*) FROM page_views WHERE window_start < '1995-08-02'") or ""
        assert f" {wanted}\n" in everything, "older triggers are overwritten"
        shown = query(port, (RECIPES / "kafka-connect" / "page-views.sql").read_text(encoding="utf-8"))
        assert shown is not None
        check_shown("postgres", shown)
