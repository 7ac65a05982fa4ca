"""The Kubernetes manifests: valid by the published schemas, and their probes ask for pages that a worker serves."""

import re
import textwrap
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from susurrus.agents.web import Pages

MANIFEST = Path(__file__).parents[2] / "deploy" / "kubernetes" / "susurrus.yaml"


def test_every_resource_follows_its_schema() -> None:
    validate = pytest.importorskip(
        "kubernetes_validate", reason="MANIFESTS NOT CHECKED: pip install kubernetes-validate to check them"
    )
    yaml = pytest.importorskip("yaml")
    resources = list(yaml.safe_load_all(MANIFEST.read_text()))
    assert {resource["kind"] for resource in resources} >= {"ConfigMap", "StatefulSet", "PodDisruptionBudget"}
    for resource in resources:
        validate.validate(resource, validate.latest_version(), strict=True)


def test_probes_ask_for_pages_of_the_configured_port() -> None:
    text = MANIFEST.read_text()
    config = tomllib.loads(textwrap.dedent(text.partition("pipeline.toml: |\n")[2].partition("---\n")[0]))
    assert f"containerPort: {config['worker']['web_port']}}}" in text
    assert config["worker"]["web_host"] == "0.0.0.0"  # the kubelet comes from outside the pod
    healthy: Any = SimpleNamespace(unhealthy=lambda: None, unready=lambda: None)
    paths = re.findall(r"httpGet: \{path: (\S+), port: web\}", text)
    assert paths == ["/readyz", "/healthz"]
    for path in paths:
        assert Pages(healthy, None, pipeline="p").page(path) == (200, "text/plain; charset=utf-8", "ok\n")
