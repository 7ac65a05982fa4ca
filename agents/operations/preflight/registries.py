"""The schema registries: do they answer, and do they accept the schemas of the rows?"""

from collections.abc import Iterator
from typing import Any

from susurrus.agents.finding import Finding
from susurrus.agents.formats.outputs import looks_of
from susurrus.agents.formats.schemas import RegistrySettings
from susurrus.agents.runtime.pipeline import Pipeline


def check_input_registry(pipeline: Pipeline[Any]) -> Iterator[Finding]:
    """Does the registry of the input answer? Records wait while it does not."""
    for path, written in pipeline.settings.input.each_format.items():
        if written.registry is not None:
            yield from _answers(f"{path}.registry", written.registry)


def _answers(path: str, registry: RegistrySettings) -> Iterator[Finding]:
    try:
        with registry.client(path) as client:
            subjects = client.get_subjects()
    except ImportError:
        return  # the check of the packages has said so
    except Exception as error:  # the HTTP client, TLS and proxies raise many types
        text, action = f"no answer ({type(error).__name__})", f"start the registry, or correct {path}"
        yield Finding(path, "failure", text, action)
        return
    yield Finding(path, "ok", f"answers, has {len(subjects):,} subjects")


def check_output_registry(pipeline: Pipeline[Any]) -> Iterator[Finding]:
    """Does the registry of the output accept the schemas? A worker does not start where it does not."""
    settings = pipeline.settings
    for said in looks_of(settings.output, settings.schemas, settings.namespace):
        yield Finding("output.registry", "ok", said)
