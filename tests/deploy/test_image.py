"""The container image, built and run, where a Docker daemon answers. CI has none.

$SUSURRUS_TEST_PYTHON_IMAGE and $SUSURRUS_TEST_RUST_IMAGE are bases to build with where the Dockerfile's own cannot be pulled.
"""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.deploy.test_lock import read

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
LARGEST = 400_000_000
CHARTS = 8_000_000
BASES = ["PYTHON", "RUST"]
CONFINED = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges:true"]
needs_docker = [pytest.mark.shipped, pytest.mark.xdist_group("image"), pytest.mark.timeout(1200)]


def docker(*arguments: str) -> str:
    """Standard output; AssertionError with what it said where it fails."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def image() -> str:
    return built("worker")


@pytest.fixture(scope="module")
def dashboard() -> str:
    return built("dashboard")


def built(target: str) -> str:
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode
    ):
        pytest.skip("NO DOCKER DAEMON ANSWERS: the image is not built, run or measured")
    name = f"susurrus-{target}-under-test"
    options = []
    for argument in BASES:
        if base := os.environ.get(f"SUSURRUS_TEST_{argument}_IMAGE"):
            options += ["--build-arg", f"{argument}={base}"]
    if target != "worker":
        options += ["--target", target]
    docker("build", "--quiet", "--network", "host", *options, "-f", f"{ROOT}/deploy/Dockerfile", "-t", name, str(ROOT))
    return name


def test_the_bases_are_named_by_their_digests() -> None:
    stages = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", DOCKERFILE, re.MULTILINE)
    assert {base for base, _ in stages} - {name for _, name in stages} == {
        *(f"${{{base}}}" for base in BASES),
        "scratch",
    }
    assert stages[-1] == ("worker", "")  # what is built without --target
    for base in BASES:
        assert re.search(rf"^ARG {base}={base.lower()}:[\w.-]+@sha256:[0-9a-f]{{64}}$", DOCKERFILE, re.MULTILINE), base


class TestImage:
    pytestmark = needs_docker

    def test_it_is_small(self, image: str) -> None:
        size = int(docker("image", "inspect", "--format", "{{.Size}}", image))
        assert 0 < size < LARGEST

    def test_it_runs_confined_as_an_unprivileged_user(self, image: str) -> None:
        said = docker(
            "run", "--rm", *CONFINED, "--entrypoint", "sh", image, "-c", "id -u; touch /opt/x || echo refused"
        )
        assert said == "10001\nrefused\n"
        version, loops = docker("run", "--rm", *CONFINED, image, "--version").splitlines()
        assert version == f"susurrus {VERSION}"
        assert re.fullmatch(r"the hot loops are compiled, by rustc [\d.]+ for \w+-unknown-linux-gnu\.2\.17", loops)

    def test_a_pipeline_runs_in_it(self, image: str) -> None:
        """With the libraries as they were cut down."""
        assert re.search(r"^Kept +\d+ of 2,088 urls", docker("run", "--rm", *CONFINED, image, "demo"), re.MULTILINE)

    def test_its_hot_loops_are_compiled(self, image: str) -> None:
        asked = "from susurrus.agents.operations.compiled import finding; print(finding().level)"
        assert docker("run", "--rm", *CONFINED, "--entrypoint", "python", image, "-c", asked) == "ok\n"

    def test_nothing_in_it_installs_anything(self, image: str) -> None:
        names = "pip pip3 apt-get perl mount su cargo rustc gcc"
        asked = f"for each in {names}; do command -v $each; done; python -c 'import pip' || echo none"
        assert docker("run", "--rm", "--entrypoint", "sh", image, "-c", asked) == "none\n"

    def test_its_bill_of_materials_names_what_is_locked(self, image: str) -> None:
        bill = json.loads(docker("run", "--rm", "--entrypoint", "cat", image, "/opt/susurrus/sbom.json"))
        assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == ("CycloneDX", VERSION)
        found = {(canonicalize_name(each["name"]), each["version"]) for each in bill["components"]}
        locked = {
            (canonicalize_name(each.name), str(each.specifier).removeprefix("=="))
            for each in read((ROOT / "deploy" / "requirements.lock").read_text())
            if each.marker is None or each.marker.evaluate({"python_version": "3.11", "python_full_version": "3.11.0"})
        }
        assert found == locked


class TestDashboardImage:
    pytestmark = needs_docker

    def test_it_has_little_that_the_workers_image_has_not(self, image: str, dashboard: str) -> None:
        sizes = [int(docker("image", "inspect", "--format", "{{.Size}}", each)) for each in (image, dashboard)]
        assert sizes[0] < sizes[1] < sizes[0] + CHARTS

    def test_it_serves_the_page_with_its_charts(self, dashboard: str) -> None:
        """Without a Kafka the page is there and says so."""
        asked = (
            "import json, time, urllib.request as u\n"
            "from susurrus.agents.pipelines import settings_from\n"
            "from susurrus.agents.dashboard.serving import serving\n"
            "data = {'pipeline': {'name': 'p'}, 'kafka': {'bootstrap_servers': '127.0.0.1:1'}, 'input': {'topic': 't', "
            "'user': 'u', 'key': ['k']}, 'privacy': {'epsilon': 6.0, 'delta': 1e-9}}\n"
            "with serving(settings_from(data, environ={}), port=0) as server:\n"
            "    while not (state := json.load(u.urlopen(server.url + 'api/state')))['trouble']: time.sleep(0.2)\n"
            "    size = len(u.urlopen(server.url + 'assets/plotly.min.js').read())\n"
            "    print(state['charts'], state['trouble']['kind'], size > 1_000_000)\n"
        )
        said = docker("run", "--rm", *CONFINED, "--entrypoint", "python", dashboard, "-c", asked)
        assert said == "True away True\n"

    def test_its_bill_of_materials_names_plotly(self, dashboard: str) -> None:
        bill = json.loads(docker("run", "--rm", "--entrypoint", "cat", dashboard, "/opt/susurrus/sbom.json"))
        (locked,) = read((ROOT / "deploy" / "requirements-dashboard.lock").read_text())
        found = {(each["name"], each["version"]) for each in bill["components"]}
        assert (locked.name, str(locked.specifier).removeprefix("==")) in found
