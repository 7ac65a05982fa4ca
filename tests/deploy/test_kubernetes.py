"""The Kubernetes manifests: valid by schema and by what an API server checks beyond, confined, and fit for the program.

Every check is shown a manifest that breaks it.
"""

import copy
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kubernetes_validate
import pytest
import tomli_w
import yaml
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from susurrus.agents.cli.main import app
from susurrus.agents.operations.web import Pages
from susurrus.agents.pipelines import settings_from
from tests.broker import Broker
from tests.deploy.manifests import CHECKS, Document, configuration, load, of_kind, pod, problems

MANIFEST = Path(__file__).parents[2] / "deploy" / "kubernetes" / "susurrus.yaml"
TEXT = MANIFEST.read_text()
ALL = sorted(kubernetes_validate.utils.all_versions(), key=lambda each: tuple(map(int, each.split("."))))
VERSIONS = [ALL[-6], ALL[-1]]
GONE = object()


def changed(kind: str, path: str, value: object) -> list[Document]:
    """The documents, with another value (or GONE) at a path such as ``spec.containers.0.image`` of the first of a kind."""
    documents = copy.deepcopy(load(TEXT))
    place: Any = of_kind(documents, kind)[0]
    *way, last = (int(step) if step.isdigit() else step.replace("~", ".") for step in path.split("."))
    for step in way:
        place = place[step]
    if value is GONE:
        del place[last]
    elif isinstance(place, list) and last == len(place):
        place.append(value)
    else:
        place[last] = value
    return documents


@pytest.mark.parametrize("kubernetes", VERSIONS)
def test_every_resource_follows_its_schema(kubernetes: str) -> None:
    documents = load(TEXT)
    assert {each["kind"] for each in documents} >= {"ConfigMap", "Job", "StatefulSet", "Service", "NetworkPolicy"}
    for each in documents:
        kubernetes_validate.validate(each, kubernetes, strict=True)


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("StatefulSet", "spec.replica", 2),
        ("StatefulSet", "spec.template.spec.containers.0.readOnlyRootFilesystem", True),
        ("NetworkPolicy", "spec.egress.0.ports.0.port", [53]),
        ("Job", "spec.backoffLimit", "six"),
        ("PodDisruptionBudget", "spec.selectors", {}),
    ],
)
def test_an_unknown_field_or_another_type_is_refused_by_the_schema(kind: str, path: str, value: object) -> None:
    broken = of_kind(changed(kind, path, value), kind)[0]
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[-1], strict=True)


def test_a_name_that_stands_twice_is_refused() -> None:
    with pytest.raises(yaml.YAMLError, match="replicas stands twice"):
        load(TEXT.replace("  replicas: 2\n", "  replicas: 2\n  replicas: 3\n"))


def test_nothing_is_wrong_beyond_the_schema() -> None:
    assert problems(load(TEXT), TEXT) == []


WORKER = "spec.template.spec.containers.0"
OTHER = {"app.kubernetes.io/name": "susurrus", "app.kubernetes.io/instance": "other"}
BROAD = {"app.kubernetes.io/name": "susurrus"}
BROKEN: dict[str, list[tuple[str, str, Any, str]]] = {
    "names": [
        ("Service", "metadata.name", "Page_Views", "not a name"),
        ("Service", "metadata.namespace", "elsewhere", "several namespaces"),
        ("StatefulSet", "metadata.name", "p" * 53, "not a name"),
    ],
    "labels": [
        ("StatefulSet", "metadata.labels.app~kubernetes~io/instance", "page views", "label"),
        ("Job", "spec.template.metadata.labels.app~kubernetes~io/name", 1, "label"),
    ],
    "selectors": [
        ("StatefulSet", "spec.selector.matchLabels", OTHER, "own pods"),
        ("StatefulSet", "spec.selector.matchLabels", BROAD, "own pods"),
        ("StatefulSet", "spec.template.metadata.labels", OTHER, "own pods"),
        ("Service", "spec.selector", BROAD, "workers alone"),
        ("PodDisruptionBudget", "spec.selector.matchLabels", OTHER, "workers alone"),
        ("NetworkPolicy", "spec.podSelector.matchLabels", OTHER, "every pod"),
        ("Job", "spec.template.metadata.labels", OTHER, "every pod"),
        ("Job", "spec.selector", {"matchLabels": OTHER}, "selector is made"),
    ],
    "mounts": [
        ("StatefulSet", f"{WORKER}.volumeMounts.3.name", "disk", "mounted and not there"),
        ("StatefulSet", "spec.volumeClaimTemplates.0.metadata.name", "disk", "mounted and not there"),
        ("StatefulSet", f"{WORKER}.volumeMounts.2", GONE, "noise is not mounted"),
        ("StatefulSet", f"{WORKER}.volumeMounts.2.mountPath", "/run/secrets/kafka", "mounted twice"),
        ("StatefulSet", "spec.template.spec.volumes.2.name", "kafka", "stands twice"),
    ],
    "references": [
        ("ConfigMap", "metadata.name", "visits", "ConfigMap page-views"),
        ("Job", "spec.template.spec.volumes.1.secret.secretName", "kafka", "how to make the secret kafka"),
        ("Service", "metadata.name", "visits", "serviceName"),
        ("Service", "spec.clusterIP", GONE, "serviceName"),
    ],
    "ports": [
        ("StatefulSet", f"{WORKER}.ports.0.name", "pages", "readinessProbe asks port web"),
        ("StatefulSet", f"{WORKER}.ports.0.name", "pages-of-the-worker", "not valid"),
        ("StatefulSet", f"{WORKER}.livenessProbe.successThreshold", 2, "successThreshold"),
        ("NetworkPolicy", "spec.ingress.0.ports.0.port", "metrics", "port metrics"),
    ],
    "resources": [
        ("StatefulSet", f"{WORKER}.resources.requests.memory", "4Gi", "above its limit"),
        ("StatefulSet", f"{WORKER}.resources.requests.cpu", "one", "no quantity"),
        ("StatefulSet", f"{WORKER}.resources.limits.memory", GONE, "no limit of memory"),
        ("Job", f"{WORKER}.resources.limits.ephemeral-storage", GONE, "no limit of ephemeral-storage"),
    ],
    "lifecycles": [
        ("Job", "spec.template.spec.restartPolicy", GONE, "restartPolicy Always"),
        ("StatefulSet", "spec.template.spec.restartPolicy", "Never", "restartPolicy Never"),
        ("Job", "spec.ttlSecondsAfterFinished", GONE, "immutable"),
        ("StatefulSet", "spec.selector.matchLabels.app~kubernetes~io/version", "0.1.0", "no version in it"),
        ("PodDisruptionBudget", "spec.minAvailable", 1, "either"),
    ],
    "restricted": [
        ("StatefulSet", "spec.template.spec.hostNetwork", True, "hostNetwork"),
        (
            "StatefulSet",
            "spec.template.spec.volumes.0",
            {"name": "config", "hostPath": {"path": "/etc"}},
            "volume config",
        ),
        ("Job", "spec.template.spec.securityContext.runAsNonRoot", GONE, "as root"),
        ("Job", "spec.template.spec.securityContext.runAsUser", "susurrus", "number"),
        ("StatefulSet", f"{WORKER}.securityContext.runAsUser", 0, "number"),
        ("StatefulSet", "spec.template.spec.securityContext.seccompProfile", GONE, "seccomp"),
        ("StatefulSet", f"{WORKER}.securityContext.allowPrivilegeEscalation", GONE, "gain privileges"),
        ("Job", f"{WORKER}.securityContext.capabilities.add", ["NET_ADMIN"], "capabilities"),
        ("StatefulSet", f"{WORKER}.ports.0.hostPort", 9464, "port of its node"),
    ],
    "confinement": [
        ("StatefulSet", f"{WORKER}.securityContext.readOnlyRootFilesystem", GONE, "StatefulSet: the root file system"),
        ("Job", f"{WORKER}.securityContext.readOnlyRootFilesystem", False, "Job: the root file system"),
        ("StatefulSet", f"{WORKER}.volumeMounts.0.readOnly", GONE, "/etc/susurrus is writable"),
        ("Job", "spec.template.spec.volumes.1.secret.secretName", "page-views-noise", "draws no noise"),
        ("Job", "spec.template.spec.automountServiceAccountToken", GONE, "token"),
        ("StatefulSet", f"{WORKER}.image", "registry.example/susurrus:latest", "of no version"),
        ("StatefulSet", f"{WORKER}.image", "registry.example/susurrus:0.2.0", "several images"),
    ],
    "traffic": [
        ("NetworkPolicy", "spec.policyTypes", ["Ingress"], "both directions"),
        ("NetworkPolicy", "spec.egress.2", {}, "rule for everything"),
        ("NetworkPolicy", "spec.egress.1.ports", GONE, "rule for everything"),
        ("NetworkPolicy", "spec.egress.1.ports.0.port", 9092, "Kafka is at"),
        ("NetworkPolicy", "spec.egress.1", GONE, "Kafka is at"),
        ("NetworkPolicy", "spec.egress.0", GONE, "name service"),
        ("NetworkPolicy", "spec.egress.0.ports.0.protocol", "TCP", "name service"),
        ("NetworkPolicy", "spec.ingress.0.from", GONE, "rule for everything"),
    ],
    "files": [
        ("StatefulSet", f"{WORKER}.volumeMounts.3.mountPath", "/data", "/var/lib/susurrus/state"),
        ("StatefulSet", f"{WORKER}.volumeMounts.2.mountPath", "/run/noise", "/run/secrets/noise/secret"),
        ("Job", f"{WORKER}.volumeMounts.1.mountPath", "/run/kafka", "/run/secrets/kafka/password"),
        ("StatefulSet", f"{WORKER}.ports.0.containerPort", 8080, "worker's pages"),
    ],
}


def test_every_check_is_shown_what_breaks_it() -> None:
    assert set(BROKEN) == {check.__name__ for check in CHECKS}


@pytest.mark.parametrize(
    ("check", "kind", "path", "value", "reported"),
    [(check, *change) for check, changes in BROKEN.items() for change in changes],
)
def test_a_broken_manifest_is_reported(check: str, kind: str, path: str, value: object, reported: str) -> None:
    (asked,) = (each for each in CHECKS if each.__name__ == check)
    sentences = list(asked(changed(kind, path, value), TEXT))
    assert any(reported in sentence for sentence in sentences), sentences


def test_a_resource_that_stands_twice_is_reported() -> None:
    assert any("stands 2 times" in each for each in problems([*load(TEXT), *of_kind(load(TEXT), "Service")], TEXT))


def settings_data() -> dict[str, Any]:
    data = configuration(load(TEXT))
    assert data["kafka"]["properties"]["sasl.password"] == {"file": "/run/secrets/kafka/password"}
    data["kafka"]["properties"]["sasl.password"] = "that file is only on the cluster"
    return data


def test_the_configuration_is_valid() -> None:
    settings = settings_from(settings_data(), environ={})
    assert settings.topics.replication_factor == 3
    assert settings.topics.min_insync_replicas == 2
    assert settings.worker.web_host == "0.0.0.0"  # the kubelet comes from outside the pod


def test_a_worker_has_time_to_stop() -> None:
    (workers,) = of_kind(load(TEXT), "StatefulSet")
    settings: Any = settings_from(settings_data(), environ={}).worker
    longest = max(settings.transaction_timeout, settings.stop_timeout) / 1000
    assert pod(workers)["terminationGracePeriodSeconds"] > longest


def test_topics_are_made_without_the_secret_of_the_noise(kafka: Broker, tmp_path: Path) -> None:
    """The job's command with the manifest's own configuration; nothing is at the path of the secret."""
    data = settings_data()
    data["kafka"] = {"bootstrap_servers": kafka.bootstrap_servers}
    data["pipeline"]["prefix"] = kafka.new_prefix()
    data["input"]["topic"] = kafka.create_topic(kafka.new_prefix(), 2, {"message.timestamp.type": "LogAppendTime"})
    data["topics"] = {"replication_factor": 1, "min_insync_replicas": 1}
    config = tmp_path / "pipeline.toml"
    config.write_text(tomli_w.dumps(data))
    assert not Path(data["privacy"]["secret_file"]).exists()
    (job,) = of_kind(load(TEXT), "Job")
    command = [each.replace("/etc/susurrus/pipeline.toml", str(config)) for each in pod(job)["containers"][0]["args"]]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert f"{data['pipeline']['prefix']}.page-views.histogram" in kafka.admin().list_topics(timeout=30).topics


def test_probes_ask_for_pages_that_a_worker_serves() -> None:
    healthy: Any = SimpleNamespace(unhealthy=lambda: None, unready=lambda: None)
    paths = re.findall(r"httpGet: \{path: (\S+), port: web\}", TEXT)
    assert paths == ["/readyz", "/healthz"]
    for path in paths:
        assert Pages(healthy, CollectorRegistry(), pipeline="p").page(path) == (
            200,
            "text/plain; charset=utf-8",
            "ok\n",
        )
