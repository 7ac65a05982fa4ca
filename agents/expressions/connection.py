"""The engine that reads and evaluates expressions, and connections to it."""

from collections.abc import Callable, Mapping
from itertools import count
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
_OPTIMIZERS: Final = frozenset(("expression_rewriter",))
"""The engine's only optimizer that runs: it looks at one expression. Others look at the number of records or at their values,
or move a part of an expression out of the TRY around it, so that one record's failure would be the batch's."""


def connect() -> Any:
    """A new engine in memory, which reaches no file, no network and no setting."""
    import duckdb  # takes long to load, and most pipelines have no expression

    connection = duckdb.connect(":memory:", config=_SETTINGS)
    connection.execute("SET TimeZone = 'UTC'")
    known = {name for (name,) in connection.execute("SELECT name FROM duckdb_optimizers()").fetchall()}
    connection.execute(f"SET disabled_optimizers = '{','.join(sorted(known - _OPTIMIZERS))}'")
    connection.execute("SET lock_configuration = true")
    return connection


class Engine:
    """A connection that evaluates queries over the records of one batch; a new one where an error has made it unusable.

    functions: from a text or None to a text or None, by the name under which queries call them; pure, and they never raise.
    """

    def __init__(self, functions: Mapping[str, Callable[[str | None], str | None]] | None = None) -> None:
        import duckdb

        self._functions = functions or {}

        self.refused: type[Exception] = duckdb.Error
        """What a query raises that cannot be evaluated."""
        self.short: tuple[type[Exception], ...] = (duckdb.OutOfMemoryException, MemoryError)
        """Among them and beside them, what is raised where memory ends."""
        self.connections = 0
        """How many there were. What was prepared for one is of no use for the next."""
        self._numbers = count()
        self.connection = self._connect()

    def _connect(self) -> Any:
        self.connections += 1
        connection = connect()
        for name, function in self._functions.items():
            connection.create_function(
                name, function, ["VARCHAR"], "VARCHAR", null_handling="special", side_effects=False
            )
        return connection

    def fetch(self, query: str, arrays: dict[str, Any]) -> Any:
        """The column ``v`` of a query over the table ``batch`` of these arrays."""
        self.connection.register("batch", arrays)
        return self.connection.execute(query).fetchnumpy()["v"]

    def fetch_lists(self, query: str, arrays: dict[str, Any]) -> list[list[str | None] | None]:
        """The same, where ``v`` is a list."""
        self.connection.register("batch", arrays)
        return [value for (value,) in self.connection.execute(query).fetchall()]

    def kind(self, query: str, arrays: dict[str, Any]) -> str:
        """The type of the query's first column."""
        self.connection.register("batch", arrays)
        return str(self.connection.execute(query).description[0][1])

    def number(self) -> int:
        """A number that no other table of this engine has."""
        return next(self._numbers)

    def close(self) -> None:
        """End the engine."""
        self.connection.close()

    def recover(self) -> None:
        """Called after an error: one that ended the engine must not become every later record's."""
        try:
            self.connection.abort()  # of a result that broke off, nobody fetches the rest
            self.connection.execute("SELECT 1").fetchall()
        except self.refused:
            self.connection = self._connect()
