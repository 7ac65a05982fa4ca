"""What a statement reads: the topics of FROM, and the lists by which records are taken apart.

FROM topic [, topic] [CROSS JOIN UNNEST(list) AS item]
"""

import re
from typing import Any, Final

from sqlglot import TokenType

from susurrus.agents.sql.source import Span
from susurrus.agents.sql.values import field_or_expression

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]+\Z", re.ASCII)
_UNNEST: Final = "write CROSS JOIN UNNEST(list) AS item"


def inputs(span: Span) -> tuple[dict[str, Any], dict[str, Span]]:
    """The settings of FROM, by dotted name, and their places. Raises ConfigurationError."""
    if not len(span):
        raise span.error("name the topic: FROM topic")
    first = next((index for index in range(len(span)) if _begins_list(span, index)), len(span))
    topics = [_topic(item) for item in span.part(0, first).items()]
    found: dict[str, Any] = {"input.topic": topics[0]} if len(topics) == 1 else {"input.topics": topics}
    places = dict.fromkeys(found, span.part(0, first))
    if first < len(span):
        rest = span.part(first)
        starts = [index for index in range(len(rest)) if _begins_list(rest, index)]
        steps = [rest.part(start, end) for start, end in zip(starts, [*starts[1:], len(rest)], strict=True)]
        lists = [_list(step) for step in steps]
        found["input.each"] = [_step(step, of) for step, of in zip(steps, lists, strict=True)]
        places |= {"input.each": rest, **{f"input.each.{index}": of for index, of in enumerate(lists)}}
    return found, places


def is_unnest(span: Span, index: int) -> bool:
    """Whether the JOIN at ``index`` is one of a record with a list in it."""
    return span.word(index - 1) == "CROSS" and span.word(index + 1) == "UNNEST"


def _begins_list(span: Span, index: int) -> bool:
    if span.words(index, "CROSS", "JOIN", "UNNEST"):
        return True
    return span.kind(index) == TokenType.COMMA and span.word(index + 1) == "UNNEST"


def _topic(span: Span) -> str:
    if span.kind(0) == TokenType.L_PAREN:
        raise span.error("a query inside a query is not possible; name a topic")
    name = span.tokens[0].text if span.kind(0) == TokenType.IDENTIFIER and len(span) == 1 else span.sql()
    if not _TOPIC.match(name):
        raise span.error(
            'write one topic without an alias; its name has letters, digits, ".", "_" and "-" (in double quotes, not '
            "backticks, where SQL could take it for something else)"
        )
    return name


def _list(span: Span) -> Span:
    """The list of one ``CROSS JOIN UNNEST(list) AS item``."""
    call = span.part(span.find("UNNEST") or 0)
    if call.kind(1) != TokenType.L_PAREN:
        raise call.error(_UNNEST)
    inside = call.part(2, call.closing(1))
    if not len(inside) or len(inside.items()) > 1:
        raise call.error(f"UNNEST takes one list; {_UNNEST}")
    return inside


def _step(span: Span, of: Span) -> dict[str, Any]:
    """The same, as ``input.each`` has it."""
    alias = span.part((span.find("UNNEST") or 0) + len(of) + 3)
    step: dict[str, Any] = {"of": field_or_expression(of)}
    if not len(alias):
        return step
    named = alias.part(1) if alias.word(0) == "AS" else alias
    if len(named) != 1 or not (named.word(0) or named.kind(0) == TokenType.IDENTIFIER):
        raise alias.error("an item has one name; write AS item")
    return {**step, "as": named.tokens[0].text}
