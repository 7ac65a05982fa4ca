"""Connections to the engine that reads and evaluates expressions."""

from typing import Any, Final

_SETTINGS: Final[dict[str, str | bool | int | float | list[str]]] = {
    "threads": "1",
    "async_threads": "0",
    "memory_limit": "512MB",
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "temp_directory": "",  # nothing spills to a disk, which may be read-only
    "pandas_analyze_sample": "0",  # no guess of a type from some rows: columns of objects are texts
}


def connect() -> Any:
    """A new engine in memory, which reaches no file, no network and no setting."""
    import duckdb  # slow to load, and most pipelines have no expression

    connection = duckdb.connect(":memory:", config=_SETTINGS)
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET lock_configuration = true")
    return connection
