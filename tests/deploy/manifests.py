"""What an API server and a kubelet make of manifests beyond their schemas: do the names in them find each other, and is it allowed?

Each check takes the documents and yields sentences; ``problems`` asks all of them. The rules are those of the Kubernetes API
reference and of the restricted Pod Security Standard; the last ones are Susurrus' own.
"""

import re
import textwrap
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import yaml

Document = dict[str, Any]
Check = Callable[[list[Document], str], Iterator[str]]

LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9](-?[a-z0-9])*")
QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
UNITS = {"m": "0.001", "k": "1e3", "M": "1e6", "G": "1e9", "T": "1e12"}
UNITS |= {f"{unit}i": str(1024 ** (place + 1)) for place, unit in enumerate("KMGT")}
RESTRICTED_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret",
}  # fmt: skip


class StrictLoader(yaml.SafeLoader):  # type: ignore[misc]  # without types
    """A name that stands twice in a mapping is an error, as for an API server that decodes strictly."""


def _mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    names = Counter(loader.construct_object(key) for key, _ in node.value)
    for name, times in names.items():
        if times > 1:
            raise yaml.constructor.ConstructorError(None, None, f"{name} stands twice", node.start_mark)
    return dict(loader.construct_pairs(node, deep=True))


StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def load(text: str) -> list[Document]:
    """The documents of a manifest. Raises yaml.YAMLError, also where a name stands twice."""
    return list(yaml.load_all(text, StrictLoader))


def of_kind(documents: list[Document], *kinds: str) -> list[Document]:
    return [document for document in documents if document["kind"] in kinds]


def workloads(documents: list[Document]) -> list[Document]:
    return of_kind(documents, "StatefulSet", "Job", "Deployment")


def pod(workload: Document) -> Document:
    spec: Document = workload["spec"]["template"]["spec"]
    return spec


def labels_of(workload: Document) -> dict[str, str]:
    found: dict[str, str] = workload["spec"]["template"].get("metadata", {}).get("labels", {})
    return found


def containers(workload: Document) -> list[Document]:
    return [*pod(workload).get("initContainers", []), *pod(workload)["containers"]]


def volumes(workload: Document) -> dict[str, Document]:
    """By name; claims of a StatefulSet as well."""
    own = {volume["name"]: volume for volume in pod(workload).get("volumes", [])}
    claims = workload["spec"].get("volumeClaimTemplates", [])
    return own | {claim["metadata"]["name"]: {"persistentVolumeClaim": claim} for claim in claims}


def quantity(text: object) -> Decimal | None:
    found = QUANTITY.fullmatch(str(text))
    return None if found is None else Decimal(found[1]) * Decimal(UNITS.get(found[2] or "", "1"))


def configuration(documents: list[Document]) -> dict[str, Any]:
    """The pipeline's file in the ConfigMap."""
    (found,) = of_kind(documents, "ConfigMap")
    return tomllib.loads(textwrap.dedent(found["data"]["pipeline.toml"]))


# ---- what the API server refuses or ignores --------------------------------------------------------------------------


def names(documents: list[Document], text: str) -> Iterator[str]:
    """Valid, once each, all in one namespace."""
    for (kind, name), times in Counter((each["kind"], each["metadata"]["name"]) for each in documents).items():
        if times > 1:
            yield f"{kind} {name} stands {times} times"
        # A StatefulSet's pods and a Service's address are DNS labels with its name in them.
        limit = 52 if kind in ("StatefulSet", "Job") else 63
        if not SUBDOMAIN.fullmatch(name) or len(name) > limit:
            yield f"{kind} {name}: not a name"
    if len({each["metadata"].get("namespace") for each in documents}) > 1:
        yield "documents are in several namespaces"


def labels(documents: list[Document], text: str) -> Iterator[str]:
    """Values that fit."""
    for each in documents:
        metadata = [
            each["metadata"],
            *([each["spec"]["template"].get("metadata", {})] if each in workloads(documents) else []),
        ]
        for place in metadata:
            for name, value in place.get("labels", {}).items():
                if not isinstance(value, str) or not LABEL.fullmatch(value):
                    yield f"{each['kind']}: label {name}={value!r} is not valid"


def selectors(documents: list[Document], text: str) -> Iterator[str]:
    """A workload selects its own pods and no other's; what selects pods finds some."""
    pods = {each["metadata"]["name"]: labels_of(each) for each in workloads(documents)}

    def selected(wanted: dict[str, str]) -> set[str]:
        return {name for name, has in pods.items() if wanted.items() <= has.items()}

    for each in of_kind(documents, "StatefulSet"):
        name = each["metadata"]["name"]
        if selected(each["spec"]["selector"]["matchLabels"]) != {name}:
            yield f"StatefulSet {name} does not select its own pods alone"
    for each in of_kind(documents, "Job"):
        if "selector" in each["spec"]:
            yield "a Job's selector is made by the API server"
    for each in of_kind(documents, "Service", "PodDisruptionBudget"):
        spec = each["spec"]["selector"]
        wanted = spec["matchLabels"] if each["kind"] == "PodDisruptionBudget" else spec
        if selected(wanted) != {own["metadata"]["name"] for own in of_kind(documents, "StatefulSet")}:
            yield f"{each['kind']} does not select the workers alone"
    for each in of_kind(documents, "NetworkPolicy"):
        if selected(each["spec"]["podSelector"].get("matchLabels", {})) != set(pods):
            yield "NetworkPolicy does not select every pod"


def mounts(documents: list[Document], text: str) -> Iterator[str]:
    """Every mount has its volume, every volume is mounted, no path twice."""
    for workload in workloads(documents):
        kind, known = workload["kind"], volumes(workload)
        used = [mount["name"] for container in containers(workload) for mount in container.get("volumeMounts", [])]
        for name in sorted(set(used) - set(known)):
            yield f"{kind}: volume {name} is mounted and not there"
        for name in sorted(set(known) - set(used)):
            yield f"{kind}: volume {name} is not mounted"
        if len(known) != len(pod(workload).get("volumes", [])) + len(workload["spec"].get("volumeClaimTemplates", [])):
            yield f"{kind}: a volume stands twice"
        for container in containers(workload):
            paths = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
            if len(set(paths)) < len(paths):
                yield f"{kind}: a path is mounted twice"


def references(documents: list[Document], text: str) -> Iterator[str]:
    """ConfigMaps and Services are there; the text has the commands that make the secrets."""
    maps = {each["metadata"]["name"] for each in of_kind(documents, "ConfigMap")}
    secrets = set(re.findall(r"^#\s+kubectl create secret generic (\S+)", text, re.MULTILINE))
    headless = {
        each["metadata"]["name"] for each in of_kind(documents, "Service") if each["spec"].get("clusterIP") == "None"
    }
    for workload in workloads(documents):
        for volume in volumes(workload).values():
            if "configMap" in volume and volume["configMap"]["name"] not in maps:
                yield f"ConfigMap {volume['configMap']['name']} is not there"
            if "secret" in volume and volume["secret"]["secretName"] not in secrets:
                yield f"nothing says how to make the secret {volume['secret']['secretName']}"
        if workload["kind"] == "StatefulSet" and workload["spec"].get("serviceName") not in headless:
            yield "serviceName names no headless Service"


def ports(documents: list[Document], text: str) -> Iterator[str]:
    """Names of ports are valid and unique; probes and policies name ports that are there."""
    there: set[str] = set()
    for workload in workloads(documents):
        for container in containers(workload):
            own = [port.get("name", "") for port in container.get("ports", [])]
            there |= set(own)
            for name in own:
                if own.count(name) > 1 or not PORT_NAME.fullmatch(name) or len(name) > 15:
                    yield f"port name {name!r} is not valid or not unique"
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                asked = container.get(probe, {}).get("httpGet", {}).get("port")
                if isinstance(asked, str) and asked not in own:
                    yield f"{probe} asks port {asked}, which is not there"
                if probe != "readinessProbe" and container.get(probe, {}).get("successThreshold", 1) != 1:
                    yield f"{probe}: successThreshold must be 1"
    for policy in of_kind(documents, "NetworkPolicy"):
        for rule in policy["spec"].get("ingress", []):
            for port in rule.get("ports", []):
                if isinstance(port["port"], str) and port["port"] not in there:
                    yield f"NetworkPolicy lets in to port {port['port']}, which is not there"


def resources(documents: list[Document], text: str) -> Iterator[str]:
    """Quantities that are some; no request above its limit; memory and ephemeral storage limited."""
    for workload in workloads(documents):
        for container in containers(workload):
            asked = container.get("resources", {})
            limits = {name: quantity(value) for name, value in asked.get("limits", {}).items()}
            for name, value in asked.get("requests", {}).items():
                found, limit = quantity(value), limits.get(name)
                if found is None or (name in limits and (limit is None or found > limit)):
                    yield f"{workload['kind']}: request {name}={value} is no quantity or above its limit"
            for name in ("memory", "ephemeral-storage"):
                if limits.get(name) is None:
                    yield f"{workload['kind']}: no limit of {name}"


def lifecycles(documents: list[Document], text: str) -> Iterator[str]:
    """Restart policies that the kind allows; a budget says one thing; what cannot be changed need not be."""
    for workload in workloads(documents):
        policy = pod(workload).get("restartPolicy", "Always")
        if (policy == "Always") is (workload["kind"] == "Job"):
            yield f"{workload['kind']}: restartPolicy {policy} is not allowed"
        if workload["kind"] == "Job" and "ttlSecondsAfterFinished" not in workload["spec"]:
            yield "a Job's template is immutable: one that stays refuses the next apply"
        if (
            workload["kind"] == "StatefulSet"
            and "app.kubernetes.io/version" in workload["spec"]["selector"]["matchLabels"]
        ):
            yield "a StatefulSet's selector is immutable: no version in it"
    for budget in of_kind(documents, "PodDisruptionBudget"):
        if len({"minAvailable", "maxUnavailable"} & set(budget["spec"])) != 1:
            yield "a PodDisruptionBudget has either minAvailable or maxUnavailable"


# ---- the restricted Pod Security Standard ----------------------------------------------------------------------------


def restricted(documents: list[Document], text: str) -> Iterator[str]:
    """Pods that a namespace with pod-security.kubernetes.io/enforce: restricted admits."""
    for workload in workloads(documents):
        kind, spec = workload["kind"], pod(workload)
        for name in ("hostNetwork", "hostPID", "hostIPC"):
            if spec.get(name):
                yield f"{kind}: {name}"
        for name, volume in volumes(workload).items():
            if not set(volume) - {"name"} <= RESTRICTED_VOLUMES:
                yield f"{kind}: volume {name} is of a kind that is not allowed"
        for container in containers(workload):
            own, whole = container.get("securityContext", {}), spec.get("securityContext", {})
            both = whole | own
            if both.get("runAsNonRoot") is not True:
                yield f"{kind}: may run as root"
            if not isinstance(both.get("runAsUser"), int) or both["runAsUser"] == 0:
                yield f"{kind}: runAsUser is not the number of a user"
            if both.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
                yield f"{kind}: no seccomp profile"
            if own.get("allowPrivilegeEscalation") is not False or own.get("privileged"):
                yield f"{kind}: may gain privileges"
            if own.get("capabilities", {}).get("drop") != ["ALL"] or "add" in own.get("capabilities", {}):
                yield f"{kind}: keeps capabilities"
            if any("hostPort" in port for port in container.get("ports", [])):
                yield f"{kind}: takes a port of its node"


# ---- Susurrus' own ---------------------------------------------------------------------------------------------------


def confinement(documents: list[Document], text: str) -> Iterator[str]:
    """Nothing is writable but a worker's state, only workers have the noise's secret, and no token of Kubernetes."""
    for workload in workloads(documents):
        kind = workload["kind"]
        if pod(workload).get("automountServiceAccountToken") is not False:
            yield f"{kind}: mounts a token that it does not need"
        for container in containers(workload):
            if container.get("securityContext", {}).get("readOnlyRootFilesystem") is not True:
                yield f"{kind}: the root file system is not read-only"
            for mount in container.get("volumeMounts", []):
                volume = volumes(workload).get(mount["name"], {})
                if not mount.get("readOnly") and "persistentVolumeClaim" not in volume:
                    yield f"{kind}: {mount['mountPath']} is writable"
            if container["args"][0] != "worker" and any(
                "noise" in str(volume) for volume in volumes(workload).values()
            ):
                yield f"{kind}: has the noise's secret and draws no noise"
            if "@" not in container["image"] and not re.search(r":\d[\w.-]*$", container["image"]):
                yield f"{kind}: image {container['image']} is of no version"
    if len({container["image"] for workload in workloads(documents) for container in containers(workload)}) > 1:
        yield "several images"


def accounts(documents: list[Document], text: str) -> Iterator[str]:
    """Pods run under an account of their own that is there, and has no token."""
    there = {each["metadata"]["name"]: each for each in of_kind(documents, "ServiceAccount")}
    for workload in workloads(documents):
        if (name := pod(workload).get("serviceAccountName", "default")) not in there:
            yield f"{workload['kind']}: no account {name} is there"
    for name, account in there.items():
        if account.get("automountServiceAccountToken") is not False:
            yield f"ServiceAccount {name} has a token"


def monitors(documents: list[Document], text: str) -> Iterator[str]:
    """A ServiceMonitor finds a Service, and a port of it that leads to a port of the pods."""
    pages = {port["name"] for each in workloads(documents) for own in containers(each) for port in own.get("ports", [])}
    services = of_kind(documents, "Service")
    for service in services:
        for port in service["spec"].get("ports", []):
            if port.get("targetPort", port["port"]) not in pages:
                yield f"Service: port {port['name']} leads to none of the pods"
    for monitor in of_kind(documents, "ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        found = [each for each in services if wanted <= each["metadata"].get("labels", {}).items()]
        ports = {port["name"] for each in found for port in each["spec"].get("ports", [])}
        for endpoint in monitor["spec"]["endpoints"]:
            if endpoint["port"] not in ports:
                yield f"ServiceMonitor: no Service has a port {endpoint['port']}"


def traffic(documents: list[Document], text: str) -> Iterator[str]:
    """Out to name service and to Kafka as configured; in from somewhere that is named, to the pages."""
    (policy,) = of_kind(documents, "NetworkPolicy")
    spec = policy["spec"]
    if set(spec.get("policyTypes", [])) != {"Ingress", "Egress"}:
        yield "NetworkPolicy does not limit both directions"
    for rule in [*spec.get("egress", []), *spec.get("ingress", [])]:
        if not rule.get("ports") or not (rule.get("to") or rule.get("from")):
            yield "NetworkPolicy has a rule for everything"
    servers = configuration(documents)["kafka"]["bootstrap_servers"].split(",")
    kafka = {
        (server.partition(":")[0].partition(".")[2].partition(".")[0], int(server.rpartition(":")[2]))
        for server in servers
    }
    allowed: set[tuple[Any, ...]] = set()
    resolves: set[tuple[Any, ...]] = set()
    for rule in spec.get("egress", []):
        for peer in rule.get("to", []):
            namespace = peer.get("namespaceSelector", {}).get("matchLabels", {}).get("kubernetes.io/metadata.name")
            for port in rule.get("ports", []):
                place = (namespace, port["port"])
                (resolves if port["port"] == 53 else allowed).add(
                    (port["protocol"], *place) if port["port"] == 53 else place
                )
    if allowed != kafka:
        yield f"NetworkPolicy lets out to {sorted(allowed)}, Kafka is at {sorted(kafka)}"
    if resolves != {("UDP", "kube-system", 53), ("TCP", "kube-system", 53)}:
        yield "NetworkPolicy does not let out to name service, and to nothing else of that port"


def files(documents: list[Document], text: str) -> Iterator[str]:
    """The configuration's paths are where something is mounted that has them."""
    settings = configuration(documents)
    for workload in workloads(documents):
        for container in containers(workload):
            found = {mount["mountPath"]: mount for mount in container.get("volumeMounts", [])}
            wanted = [container["args"][-1], settings["kafka"]["properties"]["sasl.password"]["file"]]
            if container["args"][0] == "worker":
                wanted += [settings["privacy"]["secret_file"], settings["worker"]["data_directory"]]
            for path in wanted:
                if path.rpartition("/")[0] not in found:
                    yield f"{workload['kind']}: nothing is mounted for {path}"
            page = [port["containerPort"] for port in container.get("ports", [])]
            if container["args"][0] == "worker" and page != [settings["worker"]["web_port"]]:
                yield f"{workload['kind']}: ports {page} are not the worker's pages"


CHECKS: list[Check] = [
    names, labels, selectors, mounts, references, ports, resources, lifecycles, restricted, confinement, accounts,
    monitors, traffic, files,
]  # fmt: skip


def problems(documents: list[Document], text: str) -> list[str]:
    """Everything that is wrong, in sentences. ``text`` is what an operator reads, with commands."""
    return [sentence for check in CHECKS for sentence in check(documents, text)]
