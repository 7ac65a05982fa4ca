"""What an operator hears about the compiled loops: which path runs, and where it is the slow one, what to do."""

import logging
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from susurrus.agents.operations import compiled, worker
from susurrus.agents.pipelines import pipeline_of, settings_from

ROOT = Path(__file__).parents[3]


def have(monkeypatch: pytest.MonkeyPatch, *, topics: object, mechanisms: object) -> None:
    monkeypatch.setattr(compiled.topics, "compiled", topics)
    monkeypatch.setattr(compiled.mechanisms, "compiled", mechanisms)


@pytest.mark.parametrize(
    ("module", "by"),
    [
        (SimpleNamespace(BUILT_BY="rustc 1.95.0 for x"), ", by rustc 1.95.0 for x"),
        (SimpleNamespace(BUILT_BY=None), ""),
        (object(), ""),
    ],
    ids=["setup.py", "cargo", "another version"],
)
def test_compiled_is_ok(monkeypatch: pytest.MonkeyPatch, module: object, by: str) -> None:
    have(monkeypatch, topics=module, mechanisms=module)
    found = compiled.finding()
    assert (found.subject, found.level, str(found)) == ("compiled loops", "ok", f"the hot loops are compiled{by}")


@pytest.mark.skipif(compiled.topics.compiled is None, reason="the extension is not built")
def test_what_was_built_here_names_its_compiler() -> None:
    assert re.match(r"rustc \d", compiled.topics.compiled.BUILT_BY)
    assert compiled.mechanisms.compiled.BUILT_BY == compiled.topics.compiled.BUILT_BY


@pytest.mark.parametrize("half", [{"topics": None, "mechanisms": object()}, {"topics": object(), "mechanisms": None}])
def test_half_of_them_is_not_enough(monkeypatch: pytest.MonkeyPatch, half: dict[str, object]) -> None:
    have(monkeypatch, **half)
    monkeypatch.delenv("SUSURRUS_COMPILED", raising=False)
    found = compiled.finding()
    assert found.level == "warning"
    assert found.action.endswith("install Rust 1.83 or later and then Susurrus again")


def test_who_turned_them_off_is_reminded(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, topics=None, mechanisms=None)
    monkeypatch.setenv("SUSURRUS_COMPILED", "0")
    found = compiled.finding()
    assert found.level == "warning"
    assert found.text.startswith("SUSURRUS_COMPILED=0: ")
    assert found.action == "unset it to use the compiled ones"


@pytest.mark.parametrize(("loaded", "level"), [(None, "WARNING"), (object(), "INFO")], ids=["python", "compiled"])
def test_a_worker_says_it_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path, loaded: object, level: str
) -> None:
    """Up to where it would make its application."""

    class Stop(Exception):
        pass

    def build(pipeline: object) -> None:
        raise Stop

    have(monkeypatch, topics=loaded, mechanisms=loaded)
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
    [said] = [each for each in caplog.records if "the hot loops" in each.getMessage()]
    assert (said.levelname, said.getMessage()) == (level, str(compiled.finding()))


@pytest.mark.parametrize("crate", ["topics", "mechanisms"])
def test_the_version_of_rust_that_it_names_is_the_crates(crate: str) -> None:
    package = tomllib.loads((ROOT / crate / "rust" / "Cargo.toml").read_text())["package"]
    assert package["rust-version"] == compiled._RUST
