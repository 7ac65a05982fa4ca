"""pydantic's validation errors in an operator's words: one line per problem, the field first, the fix last."""

import difflib
import json
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError


def explain(error: ValidationError, root: type[BaseModel], data: Mapping[str, Any]) -> list[str]:
    """One line per problem. data: what was checked, for the names of columns.

    Values under ``properties`` and addresses are never shown: they may hold passwords.
    """
    lines = []
    for problem in error.errors():
        location = [part for part in problem["loc"] if not str(part).startswith(("literal[", "function-", "tag-"))]
        place = _place(location, data)
        context = problem.get("ctx", {})
        match problem["type"]:
            case "extra_forbidden":
                lines.append(
                    f"{place}: unknown field; {_suggestion(str(location[-1]), fields_at(root, location[:-1]))}"
                )
            case "missing":
                lines.append(f"{place}: is missing; add it{_example(root, place)}")
            case "value_error" if not location:  # the checks across fields, complete lines already
                lines += str(context["error"]).splitlines()
            case kind:
                shown = "" if {"properties", "url"} & set(location) else f" = {quoted(problem['input'])}"
                reason = str(context["error"]) if kind == "value_error" else _reason(kind, problem["msg"], context)
                lines.append(f"{place}{shown}: {reason}")
    return list(dict.fromkeys(lines))


def _place(location: Sequence[Any], data: Mapping[str, Any]) -> str:
    """A location as the file's author counts: the first column is column 1."""
    if len(location) > 1 and location[0] == "columns" and isinstance(location[1], int):
        column = data["columns"][location[1]]
        name = f' ("{column["name"]}")' if isinstance(column, Mapping) and isinstance(column.get("name"), str) else ""
        return ": ".join((f"column {location[1] + 1}{name}", *map(str, location[2:])))
    parts = [f", number {part + 1}" if isinstance(part, int) else f".{part}" for part in location]
    return "".join(parts).removeprefix(".")


def _example(root: type[BaseModel], section: str) -> str:
    field = root.model_fields.get(section)
    if field is None or not field.examples:
        return ""
    fields = ", ".join(f"{name} = {value}" for name, value in field.examples[0].items())
    return f", for example [{section}] {fields}"


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
