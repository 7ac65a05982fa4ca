"""What an operator hears about the compiled loops: which path runs, and where it is the slow one, what to do."""

import logging
import tomllib
from pathlib import Path

import pytest

from susurrus.agents.operations import compiled, worker
from susurrus.agents.operations.preflight.machine import check_compiled
from susurrus.agents.pipelines import pipeline_of, settings_from

ROOT = Path(__file__).parents[3]


def have(monkeypatch: pytest.MonkeyPatch, *, topics: object, mechanisms: object) -> None:
    monkeypatch.setattr(compiled.topics, "compiled", topics)
    monkeypatch.setattr(compiled.mechanisms, "compiled", mechanisms)


def test_compiled_is_said_as_a_matter_of_course(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    have(monkeypatch, topics=object(), mechanisms=object())
    with caplog.at_level(logging.INFO):
        compiled.say()
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [("INFO", "the hot loops are compiled")]
    assert [found.level for found in check_compiled()] == ["ok"]


@pytest.mark.parametrize("half", [{"topics": None, "mechanisms": object()}, {"topics": object(), "mechanisms": None}])
def test_half_of_them_is_not_enough(monkeypatch: pytest.MonkeyPatch, half: dict[str, object]) -> None:
    have(monkeypatch, **half)
    monkeypatch.delenv("SUSURRUS_COMPILED", raising=False)
    loaded, text = compiled.path_taken()
    assert not loaded
    assert text.endswith("install Rust 1.83 or later and then Susurrus again")
    [found] = check_compiled()
    assert (found.level, found.text) == ("warning", text)


def test_who_turned_them_off_is_reminded(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, topics=None, mechanisms=None)
    monkeypatch.setenv("SUSURRUS_COMPILED", "0")
    loaded, text = compiled.path_taken()
    assert not loaded
    assert text.startswith("SUSURRUS_COMPILED=0: ")
    assert text.endswith("unset it to use the compiled ones")


def test_a_worker_says_it_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Up to where it would make its application."""

    class Stop(Exception):
        pass

    def build(pipeline: object) -> None:
        raise Stop

    have(monkeypatch, topics=None, mechanisms=None)
    monkeypatch.delenv("SUSURRUS_COMPILED", raising=False)
    monkeypatch.setattr(worker, "build_app", build)
    monkeypatch.setattr(worker.logs, "configure", lambda level, form: None)
    data = {
        "pipeline": {"name": "p"},
        "input": {"topic": "t", "user": "u", "key": ["k"]},
        "privacy": {"epsilon": 1.0, "delta": 1e-9},
        "worker": {"data_directory": str(tmp_path)},
    }
    with caplog.at_level(logging.INFO), pytest.raises(Stop):
        worker.run_worker(pipeline_of(settings_from(data, environ={})))
    [said] = [each for each in caplog.records if each.name == compiled.__name__]
    assert (said.levelname, said.getMessage()) == ("WARNING", compiled.path_taken()[1])


@pytest.mark.parametrize("crate", ["topics", "mechanisms"])
def test_the_version_of_rust_that_it_names_is_the_crates(crate: str) -> None:
    package = tomllib.loads((ROOT / crate / "rust" / "Cargo.toml").read_text())["package"]
    assert package["rust-version"] == compiled._RUST
