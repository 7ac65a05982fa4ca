"""The Kubernetes manifests: valid by schema and by what an API server checks beyond, confined, and fit for the program.

Every check is shown a manifest that breaks it.
"""

import copy
import functools
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tomli_w
import yaml
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from susurrus.agents.cli.main import app
from susurrus.agents.dashboard.serving import PORT
from susurrus.agents.operations.web import Pages
from susurrus.agents.pipelines import settings_from
from tests.broker import Broker, give_up
from tests.deploy.manifests import CHECKS, Document, configuration, load, of_kind, pod, problems

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
COMMANDS = (FOLDER / "base" / "kustomization.yaml").read_text()
GONE = object()


def validate(document: Document, version: int = -1) -> None:
    """version: of Kubernetes, among those whose schemas there are. Raises kubernetes_validate.ValidationError."""
    import kubernetes_validate  # takes seconds, in each process that collects this file

    known = sorted(kubernetes_validate.utils.all_versions(), key=lambda each: tuple(map(int, each.split("."))))
    kubernetes_validate.validate(document, known[version], strict=True)


@functools.cache
def _text(folder: Path) -> str:
    kubectl = Path(sys.executable).with_name("kubectl")
    if not kubectl.exists():  # a package of the extra `dev`, on Linux
        give_up("no kubectl, which builds the Kubernetes manifests")
    done = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(name: str | Path = "overlays/production") -> list[Document]:
    """What kubectl would apply of a folder."""
    return load(_text(FOLDER / name))


def changed(kind: str, path: str, value: object) -> list[Document]:
    """The overlay's documents, with another value (or GONE) at a path such as ``spec.replicas`` of the first of a kind."""
    documents = copy.deepcopy(rendered())
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


@pytest.mark.parametrize("version", [-6, -1], ids=["sixth newest", "newest"])
@pytest.mark.parametrize("name", ["base", "overlays/production"])
def test_every_resource_follows_its_schema(version: int, name: str) -> None:
    kinds = set()
    for each in rendered(name):
        kinds.add(each["kind"])
        if each["kind"] != "ServiceMonitor":  # a custom resource: its schema is the operator's
            validate(each, version)
    assert kinds >= {
        "ConfigMap", "Job", "NetworkPolicy", "PodDisruptionBudget", "Service", "ServiceAccount", "StatefulSet",
    }  # fmt: skip


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
    import kubernetes_validate

    with pytest.raises(kubernetes_validate.ValidationError):
        validate(broken)


@pytest.mark.parametrize("file", sorted(FOLDER.rglob("*.yaml")), ids=lambda file: str(file.relative_to(FOLDER)))
def test_no_name_stands_twice(file: Path) -> None:
    assert load(file.read_text())


def test_a_name_that_stands_twice_is_refused() -> None:
    text = (FOLDER / "base" / "workers.yaml").read_text()
    with pytest.raises(yaml.YAMLError, match="replicas stands twice"):
        load(text.replace("  replicas: 2\n", "  replicas: 2\n  replicas: 3\n"))


@pytest.mark.parametrize("name", ["base", "overlays/production"])
def test_nothing_is_wrong_beyond_the_schema(name: str) -> None:
    assert problems(rendered(name), COMMANDS) == []


def test_the_overlay_says_where_how_many_and_how_large() -> None:
    (workers,) = of_kind(rendered(), "StatefulSet")
    assert {each["metadata"]["namespace"] for each in rendered()} == {"page-views"}
    assert workers["spec"]["replicas"] == 3
    (worker,) = pod(workers)["containers"]
    assert worker["resources"]["limits"] == {"memory": "4Gi", "ephemeral-storage": "256Mi"}  # one changed, one kept
    assert of_kind(rendered(), "ServiceMonitor")
    assert not of_kind(rendered("base"), "ServiceMonitor")


def overlay(folder: Path, lines: str) -> list[Document]:
    """What a kustomization makes of the base."""
    text = f"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [{_from(folder, 'base')}]\n{lines}"
    (folder / "kustomization.yaml").write_text(text)
    return rendered(folder)


def _from(folder: Path, name: str) -> str:
    return os.path.relpath(FOLDER / name, folder)


def test_with_its_component_the_registry_is_reached_and_nothing_else(tmp_path: Path) -> None:
    (before,) = of_kind(rendered("base"), "NetworkPolicy")
    documents = overlay(tmp_path, f"components: [{_from(tmp_path, 'components/registry')}]\n")
    (after,) = of_kind(documents, "NetworkPolicy")
    validate(after)
    *kept, added = after["spec"]["egress"]
    assert kept == before["spec"]["egress"]
    assert [port["port"] for port in added["ports"]] == [8081]
    assert added["to"][0]["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "schema-registry"}


def dashboard(folder: Path) -> list[Document]:
    """What the dashboard's component adds, with the configuration and the account that it uses."""
    documents = overlay(folder, f"components: [{_from(folder, 'components/dashboard')}]\n")
    base = rendered("base")
    assert [each for each in documents if each in base] == base  # what is there stays as it is
    return [each for each in documents if each not in base or each["kind"] in ("ConfigMap", "ServiceAccount")]


def test_the_dashboard_is_confined_and_has_no_secret_of_the_noise(tmp_path: Path) -> None:
    documents = dashboard(tmp_path)
    text = (FOLDER / "components" / "dashboard" / "kustomization.yaml").read_text()
    for each in documents:
        validate(each)
    about_workers = {"selectors", "monitors"}
    assert [said for check in CHECKS if check.__name__ not in about_workers for said in check(documents, text)] == []
    (policy,), (service,), (own,) = (of_kind(documents, kind) for kind in ("NetworkPolicy", "Service", "Deployment"))
    labels = own["spec"]["template"]["metadata"]["labels"]
    assert own["spec"]["selector"]["matchLabels"] == labels
    assert policy["spec"]["podSelector"]["matchLabels"] == service["spec"]["selector"] == labels
    (workers,) = of_kind(rendered("base"), "NetworkPolicy")
    assert not workers["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    (container,) = pod(own)["containers"]
    assert [port["containerPort"] for port in container["ports"]] == [PORT]
    assert not any("noise" in str(volume) for volume in pod(own)["volumes"])


def test_a_dashboard_that_is_given_the_secret_of_the_noise_is_reported(tmp_path: Path) -> None:
    documents = copy.deepcopy(dashboard(tmp_path))
    (own,) = of_kind(documents, "Deployment")
    pod(own)["volumes"][1]["secret"]["secretName"] = "susurrus-noise"
    (confinement,) = (each for each in CHECKS if each.__name__ == "confinement")
    assert any("draws no noise" in said for said in confinement(documents, ""))


def test_another_pipeline_restarts_the_workers(tmp_path: Path) -> None:
    """The name of the ConfigMap follows its text, and the pods' template follows the name."""
    (tmp_path / "pipeline.toml").write_text((FOLDER / "base" / "pipeline.toml").read_text() + "\n# changed\n")
    lines = "configMapGenerator: [{name: pipeline, behavior: replace, files: [pipeline.toml]}]\n"
    used = []
    for documents in (rendered("base"), overlay(tmp_path, lines)):
        assert problems(documents, COMMANDS) == []
        (workers,) = of_kind(documents, "StatefulSet")
        used.append(pod(workers)["volumes"][0]["configMap"]["name"])
    assert used[0] != used[1]


WORKER = "spec.template.spec.containers.0"
OTHER = {"app.kubernetes.io/name": "other"}
BROAD = {"app.kubernetes.io/name": "susurrus"}
BROKEN: dict[str, list[tuple[str, str, Any, str]]] = {
    "names": [
        ("Service", "metadata.name", "Page_Views", "not a name"),
        ("Service", "metadata.namespace", "elsewhere", "several namespaces"),
        ("StatefulSet", "metadata.name", "p" * 53, "not a name"),
    ],
    "labels": [
        ("StatefulSet", "metadata.labels.app~kubernetes~io/name", "page views", "label"),
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
        ("ConfigMap", "metadata.name", "visits", "ConfigMap pipeline-"),
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
        ("StatefulSet", f"{WORKER}.resources.requests.memory", "8Gi", "above its limit"),
        ("StatefulSet", f"{WORKER}.resources.requests.cpu", "one", "no quantity"),
        ("StatefulSet", f"{WORKER}.resources.limits.memory", GONE, "no limit of memory"),
        ("Job", f"{WORKER}.resources.limits.ephemeral-storage", GONE, "no limit of ephemeral-storage"),
    ],
    "lifecycles": [
        ("Job", "spec.template.spec.restartPolicy", GONE, "restartPolicy Always"),
        ("StatefulSet", "spec.template.spec.restartPolicy", "Never", "restartPolicy Never"),
        ("Job", "spec.ttlSecondsAfterFinished", GONE, "immutable"),
        ("StatefulSet", "spec.selector.matchLabels.app~kubernetes~io/version", "0.2.0", "no version in it"),
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
        ("Job", "spec.template.spec.volumes.1.secret.secretName", "susurrus-noise", "draws no noise"),
        ("Job", "spec.template.spec.automountServiceAccountToken", GONE, "token"),
        ("StatefulSet", f"{WORKER}.image", "registry.example/susurrus:latest", "of no version"),
        ("StatefulSet", f"{WORKER}.image", "registry.example/susurrus:0.3.0", "several images"),
    ],
    "accounts": [
        ("StatefulSet", "spec.template.spec.serviceAccountName", GONE, "no account default"),
        ("ServiceAccount", "metadata.name", "other", "no account susurrus"),
        ("ServiceAccount", "automountServiceAccountToken", GONE, "has a token"),
    ],
    "monitors": [
        ("ServiceMonitor", "spec.endpoints.0.port", "metrics", "no Service has a port metrics"),
        ("ServiceMonitor", "spec.selector.matchLabels", OTHER, "no Service has a port web"),
        ("Service", "spec.ports.0.targetPort", "pages", "leads to none"),
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
    sentences = list(asked(changed(kind, path, value), COMMANDS))
    assert any(reported in sentence for sentence in sentences), sentences


def test_a_resource_that_stands_twice_is_reported() -> None:
    assert any("stands 2 times" in each for each in problems([*rendered(), *of_kind(rendered(), "Service")], COMMANDS))


def settings_data() -> dict[str, Any]:
    data = configuration(rendered())
    assert data["kafka"]["properties"]["sasl.password"] == {"file": "/run/secrets/kafka/password"}
    data["kafka"]["properties"]["sasl.password"] = "that file is only on the cluster"
    return data


def test_the_configuration_is_valid() -> None:
    settings = settings_from(settings_data(), environ={})
    assert settings.topics.replication_factor == 3
    assert settings.topics.min_insync_replicas == 2
    assert settings.worker.web_host == "0.0.0.0"  # the kubelet comes from outside the pod


def test_a_worker_has_time_to_stop() -> None:
    (workers,) = of_kind(rendered(), "StatefulSet")
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
    (job,) = of_kind(rendered(), "Job")
    command = [each.replace("/etc/susurrus/pipeline.toml", str(config)) for each in pod(job)["containers"][0]["args"]]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert f"{data['pipeline']['prefix']}.page-views.histogram" in kafka.admin().list_topics(timeout=30).topics


def test_probes_ask_for_pages_that_a_worker_serves() -> None:
    healthy: Any = SimpleNamespace(health=SimpleNamespace(unhealthy=lambda: None, unready=lambda: None))
    (worker,) = pod(of_kind(rendered(), "StatefulSet")[0])["containers"]
    paths = [worker[probe]["httpGet"]["path"] for probe in ("readinessProbe", "livenessProbe")]
    assert paths == ["/readyz", "/healthz"]
    for path in paths:
        assert Pages(healthy, CollectorRegistry(), healthy).page(path) == (
            200,
            "text/plain; charset=utf-8",
            "ok\n",
        )
