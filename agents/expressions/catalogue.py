"""Which functions an expression may use: those of the engine's catalogue whose result follows from their arguments alone.

A function is allowed if the catalogue says that it is scalar and deterministic, and some variant of it takes and returns plain
scalars only. ``_SETTING``, ``_PLATFORM``, ``_LARGE`` and ``_COSTLY`` are exceptions that the catalogue does not show;
tests/agents/expressions/test_catalogue.py pins the result, so that a new version of the engine cannot add one unseen.
"""

from functools import cache
from typing import Any, Final

from susurrus.agents.expressions.connection import connect

SCALARS: Final = frozenset(
    (
        "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
        "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "VARCHAR", "DATE", "TIME", "TIMESTAMP", "INTERVAL",
    )
)  # fmt: skip
"""Types of arguments, results and casts."""
_TYPES: Final = SCALARS | {"BLOB", "VARCHAR[]"}  # what a text is split into
_OF_LISTS: Final = frozenset(
    ("array_contains", "array_position", "list_contains", "list_has", "list_indexof", "list_position")
)
"""Functions of a list of any type, that find an item in it. Lists are of texts here."""
_GENERIC: Final = frozenset(("||", "concat", "concat_ws", "greatest", "least"))
"""Functions that take any type, and are otherwise like the rest."""
_MACROS: Final = frozenset(("date_add", "days_in_month", "fdiv", "fmod", "if", "nullif", "split_part"))
"""Defined by allowed functions."""
_SETTING: Final = frozenset(
    ("age", "current_localtime", "current_localtimestamp", "timezone", "timezone_hour", "timezone_minute", "version")
)
"""Functions that read the clock, the time zone's tables or the engine's version, although the catalogue calls them
deterministic."""
_PLATFORM: Final = frozenset(
    (
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "cot", "exp", "gamma", "lgamma", "ln",
        "log", "log10", "log2", "pow", "power", "sin", "sinh", "tan", "tanh", "**", "^",
        "parse_dirname", "parse_dirpath", "parse_filename", "parse_path", "path_join",
    )
)  # fmt: skip
"""Functions whose last digit is the C library's, or whose separator is the system's: two workers could differ."""
_LARGE: Final = frozenset(("bar", "format", "lpad", "printf", "repeat", "rpad"))
"""Functions whose result may be far larger than their arguments, so one record could take a worker's memory."""
_COSTLY: Final = frozenset(
    ("damerau_levenshtein", "editdist3", "jaro_similarity", "jaro_winkler_similarity", "levenshtein")
)
"""Functions whose work is the product of two lengths. Some take that much memory outside the engine's limit, too."""
ALWAYS_LISTS: Final = frozenset(
    (
        "json_keys", "regexp_extract_all", "regexp_split_to_array", "split", "str_split", "str_split_regex", "string_split",
        "string_split_regex", "string_to_array",
    )
)  # fmt: skip
"""Functions whose result is a list of texts."""
LISTS: Final = ALWAYS_LISTS | {"->>", "json_extract_path_text", "json_extract_string", "json_type", "json_value"}
"""Functions whose result may be a list of texts."""
_INTERNAL: Final = ("__", "icu_", "collate_")
"""What such names begin with is the engine's own."""


@cache
def functions() -> frozenset[str]:
    """The names of all functions that an expression may use, in lower case, as the engine writes them."""
    rows: list[tuple[str, list[str], str]] = connect().execute(
        "SELECT function_name, parameter_types, return_type FROM duckdb_functions() "
        "WHERE function_type = 'scalar' AND stability = 'CONSISTENT'"
    ).fetchall()  # fmt: skip
    plain = {name for name, arguments, result in rows if all(_plain(kind) for kind in (*arguments, result))}
    known = {name for name, _, _ in rows}
    refused = _SETTING | _PLATFORM | _LARGE | _COSTLY
    allowed = plain | ((_GENERIC | _OF_LISTS) & known) | _MACROS
    return frozenset(name.lower() for name in allowed if name not in refused and not name.startswith(_INTERNAL))


@cache
def textual() -> frozenset[str]:
    """Returns those of the functions whose result may be a text or a list of texts, in lower case: it can grow with their
    arguments."""
    rows: list[tuple[str]] = connect().execute(
        "SELECT function_name FROM duckdb_functions() WHERE function_type = 'scalar' AND return_type IN "
        "('VARCHAR', 'BLOB', 'VARCHAR[]', 'VARCHAR[][]', 'ANY', 'T', 'T[]')"
    ).fetchall()  # fmt: skip
    return (frozenset(name.lower() for (name,) in rows) | _MACROS) & functions()


@cache
def types() -> frozenset[str]:
    """The names of all types that an expression may cast to, in lower case."""
    engine = connect()
    rows: list[tuple[str, str]] = engine.execute("SELECT type_name, logical_type FROM duckdb_types()").fetchall()
    names = {name.lower() for name, kind in rows if kind in SCALARS}
    # A type may be stored like a scalar and be another one, such as JSON: no value of it could be a key.
    described = engine.sql(f"SELECT {', '.join(f'CAST(NULL AS {name})' for name in sorted(names))}").types
    kinds = {name: str(kind).partition("(")[0] for name, kind in zip(sorted(names), described, strict=True)}
    return frozenset(name for name in names if kinds[name] in SCALARS)


def _plain(kind: Any) -> bool:
    return str(kind) in _TYPES
