"""pydantic's validation errors in an operator's words: one line per problem, the field first, the fix last."""

import difflib
import json
import re
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from susurrus.agents.types.durations import format_duration

_SCALARS: Final = ("str", "int", "float", "bool")


def explain(error: ValidationError, root: type[BaseModel], data: Mapping[str, Any]) -> list[str]:
    """One line per problem. data: what was checked, for the names of columns.

    Values under ``properties`` and addresses are never shown: they may hold passwords.
    """
    lines = []
    for problem in error.errors():
        if (
            "properties" in problem["loc"] and problem["loc"][-1] in _SCALARS
        ):  # the types of a property's value, one by one
            name = problem["loc"][problem["loc"].index("properties") + 1]
            section = ".".join(map(str, problem["loc"][: problem["loc"].index("properties") + 1]))
            lines.append(f'{section}."{name}": write a text in quotes, a number, or true or false')
            continue
        location = [part for part in problem["loc"] if not str(part).startswith(("literal[", "function-", "tag-"))]
        place = _place(location, data)
        context = problem.get("ctx", {})
        match problem["type"]:
            case "extra_forbidden":
                lines.append(
                    f"{place}: unknown field; {_suggestion(str(location[-1]), fields_at(root, location[:-1]))}"
                )
            case "missing":
                lines.append(f"{place}: is missing; add it{_example(root, location)}")
            case "value_error" if not location:  # the checks across fields, complete lines already
                lines += str(context["error"]).splitlines()
            case kind:
                shown = "" if {"properties", "url"} & set(location) else f" = {quoted(problem['input'])}"
                reason = str(context["error"]) if kind == "value_error" else _reason(kind, problem["msg"], context)
                if kind in _LEAST_AND_MOST and _is_duration(problem["input"]):
                    word, limit = _LEAST_AND_MOST[kind]
                    reason = f'must be {word} "{format_duration(context[limit])}"'
                lines.append(f"{place}{shown}: {reason}")
    return list(dict.fromkeys(lines))


_LEAST_AND_MOST: Final = {"greater_than_equal": ("at least", "ge"), "less_than_equal": ("at most", "le")}


def _is_duration(value: Any) -> bool:
    """Whether a text with a unit was written; variables hold texts for numbers as well."""
    return isinstance(value, str) and not re.fullmatch(r"[-+\d.eE]+", value.strip())


def _place(location: Sequence[Any], data: Mapping[str, Any]) -> str:
    """A location as the file's author counts: the first column is column 1."""
    if len(location) > 1 and location[0] == "columns" and isinstance(location[1], int):
        column = data["columns"][location[1]]
        name = f' ("{column["name"]}")' if isinstance(column, Mapping) and isinstance(column.get("name"), str) else ""
        return ": ".join((f"column {location[1] + 1}{name}", *map(str, location[2:])))
    place = ""
    for part in location:
        if isinstance(part, int):
            place += f", number {part + 1}"
        else:
            place += f": {part}" if ", number " in place else f".{part}"
    return place.removeprefix(".")


_LINES: Final = {
    "pipeline": '[pipeline] name = "page-views"',
    "input": '[input] topic = "web-requests"',
    "name": 'name = "page-views"',
    "topic": 'topic = "web-requests"',
    "epsilon": "epsilon = 6.0",
    "delta": "delta = 1e-9",
    "bound": "bound = 100.0",
    "expression": "expression = \"split_part(url, '?', 1)\"",
    "url": 'url = "https://registry:8081"',
}
"""What a file says where something required is missing, by the name of the field or section."""


def _example(root: type[BaseModel], location: Sequence[Any]) -> str:
    """The line or section to add, as TOML."""
    section = str(location[0])
    field = root.model_fields.get(section)
    if len(location) == 1 and field is not None and field.examples:
        fields = ", ".join(f"{name} = {value}" for name, value in field.examples[0].items())
        return f", for example [{section}] {fields}"
    line = _LINES.get(str(location[-1]))
    return "" if line is None else f", for example {line}"


def fields_at(root: type[BaseModel], location: Sequence[Any]) -> list[str]:
    """The names a section knows, found by walking the models along an error's location; empty where there is no
    model."""
    model: type[BaseModel] | None = root
    for part in location:
        if model is not None and not isinstance(part, int):
            fields = model.model_fields.items()
            field = next((field for name, field in fields if part in (name, field.alias)), None)
            model = None if field is None else model_in(field.annotation)
    return [] if model is None else [field.alias or name for name, field in model.model_fields.items()]


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that a type is, or has as a part; None where there is none."""
    if typing.get_origin(annotation) is None and isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in typing.get_args(annotation) if (model := model_in(part))), None)


def _suggestion(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f'did you mean "{close[0]}"?' if close else f"known here: {', '.join(known)}"


def _reason(kind: str, message: str, context: Mapping[str, Any]) -> str:
    match kind:
        case "literal_error":
            return f"use {context['expected']}"
        case "string_pattern_mismatch" if "0-9a-f" in context["pattern"]:
            return "use 2 to 64 hexadecimal digits, in lower case"
        case "string_too_short":
            return "must not be empty; write a text in quotes"
        case "path_type":
            return "write a path in quotes"
        case "string_pattern_mismatch":
            return "use letters, digits, - and _ (topic names and instances also .), starting with a letter or digit"
        case "float_parsing" | "float_type":
            return "write a number"
        case "int_parsing" | "int_type" | "int_from_float":
            return "write a whole number"
        case "bool_parsing" | "bool_type":
            return "write true or false"
        case "string_type":
            return "write a text in quotes"
        case "tuple_type":
            return "write a list in brackets"
        case "model_type" | "dict_type" | "model_attributes_type":
            return "write a section (a TOML table)"
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            return message.replace("Input should be", "must be")
    return message[:1].lower() + message[1:]


def quoted(value: Any) -> str:
    """A value as messages quote it."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
