"""Writes docs/schemas/: the schemas of the public topics. Run as `python -m tests.docs.make_schemas` from the project's root."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from susurrus.agents.formats.outputs import OUTPUT_FORMATS
from susurrus.agents.pipelines import load_settings, settings_from

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "docs" / "schemas"
PAGE_VIEWS = ROOT / "deploy" / "compose" / "pipeline.toml"
OTHERS: tuple[dict[str, Any], ...] = (
    {
        "pipeline": {"name": "page-views"},
        "input": {"topic": "web-requests", "user": "host", "key": ["url"]},
        "columns": [{"name": "visitors", "kind": "users"}],
        "top": {"order_by": "visitors"},
        "privacy": {"epsilon": 6.0, "delta": 1e-6},
    },
    {
        "pipeline": {"name": "meters", "kind": "stream"},
        "input": {"topic": "meter-readings"},
        "stream": {"value": "watts", "bound": 100.0, "epsilon": 1.0},
    },
    {"pipeline": {"name": "meters", "kind": "local"}, "local": {"bound": 100.0, "epsilon": 1.0}},
)
ENDINGS = {"json": "json", "avro": "avsc", "protobuf": "proto"}


def files() -> Iterator[tuple[str, str]]:
    """(file name, content) of each schema; that of histogram is also the one of latest."""
    page_views = load_settings(PAGE_VIEWS, {"SUSURRUS__WINDOW__ROLLING": "true"})
    for settings in (page_views, *(settings_from(data, environ={}) for data in OTHERS)):
        for topic, schema in settings.schemas.items():
            name = topic.removeprefix(settings.topic(""))
            for form, ending in ENDINGS.items():
                if name != "latest" and not (schema.always_json and form != "json"):
                    yield f"{name}.{ending}", OUTPUT_FORMATS[form].text(schema, settings.namespace) + "\n"


def main() -> None:
    """Write all files."""
    for name, text in files():
        (SCHEMAS / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
