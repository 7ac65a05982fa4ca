"""An expression's queries, read and planned once, over a table that is another one each time.

The engine asks the table's owner for its rows whenever a query runs. So a small batch pays neither for reading a query again nor
for naming a table.
"""

from typing import Any

from susurrus.agents.expressions.connection import Engine
from susurrus.agents.expressions.evaluation import Query


class _Source:
    """Exports the table of the moment as an Arrow stream."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """As Arrow's PyCapsule interface has it."""
        return self.table.__arrow_c_stream__(requested_schema)


class PreparedQueries:
    """Both queries of one expression and one combination of kinds. empty: a table of these kinds without rows."""

    def __init__(self, engine: Engine, query: Query, empty: Any) -> None:
        self._engine, self._query, self._empty = engine, query, empty
        self._source = _Source(empty)
        self._connections = 0

    def values(self, table: Any) -> Any:
        """The column of values, masked where null."""
        return self._run(0, table)

    def known(self, table: Any) -> Any:
        """Whether each null is one; false or null where it is a failure."""
        return self._run(1, table)

    def close(self) -> None:
        """Free what the engine has of them."""
        if self._connections == self._engine.connections:
            for name in self._names:
                self._engine.connection.execute(f"DEALLOCATE {name}")
            self._engine.connection.unregister(self._table)

    def _run(self, number: int, table: Any) -> Any:
        if self._connections != self._engine.connections:
            self._prepare()
        self._source.table = table
        try:
            return self._engine.connection.execute(f"EXECUTE {self._names[number]}").fetchnumpy()["v"]
        finally:
            self._source.table = self._empty

    def _prepare(self) -> None:
        connection = self._engine.connection
        number = self._engine.number()
        self._table, self._names = f"batch{number}", (f"values{number}", f"known{number}")
        connection.register(self._table, self._source)
        queries = self._query.values_of(self._table), self._query.known_of(self._table)
        for name, text in zip(self._names, queries, strict=True):
            connection.execute(f"PREPARE {name} AS {text}")
        self._connections = self._engine.connections
