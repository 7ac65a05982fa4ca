"""The file that `susurrus config init --kind` writes for a kind that lists its own questions."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from susurrus.agents.cli.new_file import aligned, opening, text_of
from susurrus.agents.cli.questions import FileDialogue
from susurrus.agents.config.questions import FileQuestion
from susurrus.agents.operations.advice import toml_value
from susurrus.agents.runtime.pipeline import Pipeline
from susurrus.agents.types.one_of import use_one_of
from susurrus.mechanisms.errors import ConfigurationError


def plain_name(topic: str) -> str:
    """A name for a pipeline that reads a topic."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", topic).strip("-_") or "pipeline"


def asked(
    pipeline: type[Pipeline[Any]], ask: FileDialogue, given: Sequence[str] | None, fields: Mapping[str, str]
) -> dict[str, str]:
    """Answers by the path of their setting; empty ones are left out. given: as `--set` has them. fields: of the records, with their
    types. Raises ConfigurationError for a setting that the kind does not ask for."""
    known = dict(_given(one, pipeline.questions) for one in given or ())
    answers: dict[str, str] = {}
    for question in pipeline.questions:
        option = f"--set {question.path}=..."
        if question.path in known:
            answer = ask(question.text, known[question.path], None, option, fields if question.field else None)
        elif question.optional and not ask.asks:
            continue
        else:
            answer = ask(question.text, None, _default(question, fields), option, fields if question.field else None)
        if question.number:
            _check_number(option, answer)
        if answer or not question.optional:
            answers[question.path] = answer
    return answers


def _given(one: str, questions: Sequence[FileQuestion]) -> tuple[str, str]:
    path, mark, value = one.partition("=")
    path = path.strip()
    if not mark:
        raise ConfigurationError(f'--set "{one}": has no value; write name=value, for example {questions[0].path}=x')
    paths = [question.path for question in questions]
    if path not in paths:
        raise ConfigurationError(
            f'--set "{path}": {use_one_of(dict.fromkeys(paths))}, and write other settings into the file'
        )
    return path, value.strip()


def _default(question: FileQuestion, fields: Mapping[str, str]) -> str | None:
    """The answer to suggest: of fields the first of the wanted type."""
    if question.optional:
        return ""
    if not question.field:
        return question.default
    return next((name for name, kind in fields.items() if question.of_type in ("", kind)), question.default)


def _check_number(option: str, answer: str) -> None:
    try:
        float(answer)
    except ValueError:
        raise ConfigurationError(f'{option} "{answer}": write a number, for example 100.0') from None


def short_toml(
    pipeline: type[Pipeline[Any]],
    *,
    servers: str,
    name: str | None,
    answers: Mapping[str, str],
    output: Path,
    topic: str = "",
    layout: Mapping[str, Any] | None = None,
    registry: str | None = "",
) -> str:
    """The file. topic, layout: of the raw topic, and how its records are written; empty for a kind without one. output: where the
    file will be; the noise's secret is beside it."""
    kind = pipeline.settings_class
    text = opening(name or plain_name(output.stem), servers, kind.kind)
    if topic:
        entries = "".join(f"{setting} = {toml_value(value)}\n" for setting, value in (layout or {}).items())
        text += f"[input]\ntopic = {text_of(topic)} # Susurrus reads it and never changes it\n{entries}\n"
    if registry:
        text += f"[input.registry]\nurl = {text_of(registry)}\n\n"
    sections: dict[str, list[str]] = {}
    for question in pipeline.questions:
        if question.path in answers:
            answer = answers[question.path]
            value = f"{float(answer)!r}" if question.number else text_of(answer)
            sections.setdefault(question.section, []).append(f"{question.name} = {value} # {question.comment}")
    if kind.secret_field is not None:
        section, _, field = kind.secret_field.rpartition(".")
        line = f"{field} = {text_of(f'{output.stem}.secret')} # the noise's secret, the same for all workers; beside this file"
        sections.setdefault(section, []).append(line)
    text += "\n".join(f"[{section}]\n" + "".join(f"{line}\n" for line in lines) for section, lines in sections.items())
    return aligned(text)
