"""A statement taken apart into its clauses. What a clause holds is read in statement.py.

SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(options) items FROM topics [CROSS JOIN UNNEST(list) AS item] [WHERE condition]
GROUP BY groups [[HAVING condition] ORDER BY column [DESC] LIMIT number] EMIT EVERY interval [;]
"""

from dataclasses import dataclass
from typing import Final

from sqlglot import TokenType

from susurrus.agents.sql.inputs import is_unnest
from susurrus.agents.sql.source import Span, StatementText

_ORDER: Final = ("FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "EMIT")
_REFUSED: Final = {
    "QUALIFY": "there are no window functions; filter the published rows where you read them",
    "UNION": "a pipeline is one SELECT; name several topics of one kind as FROM a, b",
    "EXCEPT": "a pipeline is one SELECT over one topic; use WHERE",
    "INTERSECT": "a pipeline is one SELECT over one topic; use WHERE",
    "WINDOW": "there are no window functions; TUMBLE in GROUP BY makes the windows",
    "JOIN": "join the topics before, with Kafka Streams or Flink, and read the result. A public table is a file: write "
    "lookup('table.csv', key) where its value is wanted. Only a list in a record is joined to it: CROSS JOIN UNNEST(list) AS item",
}
"""Clauses of SQL that a pipeline does not have, and what to do instead."""


@dataclass(frozen=True, slots=True)
class Clauses:
    """The parts of one statement."""

    options: Span
    select: Span
    topic: Span
    where: Span | None
    group_by: Span
    having: Span | None
    order_by: Span | None
    limit: Span | None
    emit: Span | None
    """None where CUMULATE says how often results are published."""


def clauses(source: StatementText) -> Clauses:
    """Take a statement apart. Raises ConfigurationError that shows the place and says what to do."""
    span = _one_statement(source.tokens())
    if span.word(0) == "WITH":
        raise span.part(0, 1).error("a pipeline has no common table expressions; begin with SELECT")
    if span.word(0) != "SELECT":
        raise span.part(0, 1).error("a pipeline is a SELECT; begin with SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(...)")
    start = 4
    if not span.words(1, "WITH", "DIFFERENTIAL_PRIVACY"):
        raise span.part(0, 1).error(
            "the privacy clause is missing; write SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = ..., delta = ..., "
            "privacy_unit_column = ...)"
        )
    if span.word(3) != "OPTIONS" or span.kind(4) != TokenType.L_PAREN:
        raise span.part(1, 3).error("the options are missing; write OPTIONS(epsilon = ..., delta = ...) after it")
    end = span.closing(4)
    options, rest = span.part(start + 1, end), span.part(end + 1)
    if (stray := rest.stray()) is not None:
        raise rest.part(stray, stray + 1).error(
            "this parenthesis closes nothing; take it out, or add the one before it"
        )
    _refuse(rest)
    found = [(word, rest.find(word)) for word in _ORDER]
    at = {word: index for word, index in found if index is not None}
    for word, hint in (
        ("FROM", "name the topic: FROM topic"),
        ("GROUP BY", "write GROUP BY key, TUMBLE(ROWTIME, INTERVAL '1' DAY); without a key for one total"),
        ("EMIT", "say how often results are published: EMIT EVERY INTERVAL '15' MINUTE"),
    ):
        if word not in at and not (word == "EMIT" and rest.find("CUMULATE") is not None):
            raise Span(source, (), rest.end).error(f"{word} is missing; {hint}")
    if list(at.values()) != sorted(at.values()):
        late = next(w for w, after in zip(at, list(at)[1:], strict=False) if at[w] > at[after])
        raise rest.part(at[late], at[late] + 1).error(
            f"{late} comes too late; the order is SELECT, {', '.join(_ORDER)}"
        )
    ends = dict(zip(at, [*list(at.values())[1:], len(rest)], strict=True))
    parts = {word: rest.part(index + 1, ends[word]) for word, index in at.items()}
    return Clauses(
        options,
        rest.part(0, at["FROM"]),
        parts["FROM"],
        parts.get("WHERE"),
        parts["GROUP BY"],
        parts.get("HAVING"),
        parts.get("ORDER BY"),
        parts.get("LIMIT"),
        parts.get("EMIT"),
    )


def _one_statement(span: Span) -> Span:
    for index, token in enumerate(span.tokens):
        if token.token_type == TokenType.SEMICOLON:
            if index + 1 < len(span):
                raise span.part(index + 1, index + 2).error(
                    "a second statement begins here; write one pipeline per file"
                )
            if index == 0:
                raise span.error("there is no statement; write SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(...) ...")
            return span.part(0, index)
    return span


def _refuse(rest: Span) -> None:
    """Refuse what SQL has and a pipeline has not."""
    if rest.word(0) == "DISTINCT":
        raise rest.part(0, 1).error("rows are distinct by their key already; leave DISTINCT out")
    for index in range(len(rest)):
        word, one = rest.word(index), rest.part(index, index + 1)
        if word == "SELECT":
            raise one.error(
                "a query inside a query is not possible; read one topic, and compute with WHERE and scalars"
            )
        if word == "OVER" and rest.kind(index + 1) == TokenType.L_PAREN:
            raise one.error("a window function sees other records, which is not possible; use GROUP BY ... TUMBLE")
    found = rest.find(*_REFUSED)
    while found is not None and is_unnest(rest, found):
        found = rest.find(*_REFUSED, start=found + 1)
    if found is not None:
        raise rest.part(found, found + 1).error(f"{rest.word(found)}: {_REFUSED[rest.word(found)]}")
