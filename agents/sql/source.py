"""The text of a statement: its tokens, and errors that show their place in it.

sqlglot's tokenizer knows strings, quoted names and comments, so nothing in them is taken for a clause.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import Token, TokenType, tokenize
from sqlglot.errors import SqlglotError

from susurrus.mechanisms.errors import ConfigurationError

WIDTH: Final = 68
"""Characters of a line that an error shows, so that the caret stays under its place in a narrow terminal."""
_OPEN: Final = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSE: Final = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
_WORD: Final = re.compile(r"[A-Za-z_]\w*\Z")


@dataclass(frozen=True, slots=True)
class StatementText:
    """A statement as it was written. name: what errors call it, the file."""

    name: str
    text: str

    def tokens(self) -> "Span":
        """All tokens. Raises ConfigurationError where a string or a comment has no end."""
        try:
            found = tokenize(self.text, read="duckdb")
        except (SqlglotError, ValueError, IndexError) as problem:
            said = str(problem).splitlines()[0] if str(problem) else "unknown characters"
            raise ConfigurationError(
                f"{self.name}: {said[:120]}; close every quote and comment, and use only SQL's characters"
            ) from None
        if not found:
            raise ConfigurationError(
                f"{self.name}: there is no statement; write SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(...) ..."
            )
        return Span(self, tuple(found), len(self.text))

    def shown(self, start: int, end: int) -> tuple[str, str]:
        """(place, picture) of the characters ``start`` to ``end``: file, line and column, and the line with a caret."""
        start = max(0, min(start, len(self.text)))
        before = self.text[:start]
        first = before.rfind("\n") + 1
        last = self.text.find("\n", start)
        line = self.text[first : last if last >= 0 else len(self.text)].rstrip("\r")
        column = start - first
        length = max(1, min(end - start, len(line) - column))
        left = max(0, min(column - (WIDTH - min(length, WIDTH)) // 2, len(line) - WIDTH))
        cut = "".join(c if c.isprintable() else " " for c in line[left : left + WIDTH])
        carets = "^" * max(1, min(length, WIDTH - (column - left)))
        picture = f"| {cut}\n| {' ' * (column - left)}{carets}"
        return f"{self.name}:{before.count(chr(10)) + 1}:{column + 1}", picture


@dataclass(frozen=True, slots=True)
class Span:
    """Some consecutive tokens of a source. end: the offset at which an error points when there are none left."""

    source: StatementText
    tokens: tuple[Token, ...]
    end: int

    def __len__(self) -> int:
        return len(self.tokens)

    def part(self, start: int, stop: int | None = None) -> "Span":
        """The tokens ``start`` to ``stop``."""
        tokens = self.tokens[start:stop]
        end = self.tokens[stop].start if stop is not None and stop < len(self.tokens) else self.end
        return Span(self.source, tokens, tokens[-1].end + 1 if tokens else end)

    def word(self, index: int) -> str:
        """The unquoted word at ``index``, in capitals; empty where there is another token or none."""
        if not 0 <= index < len(self.tokens):
            return ""
        token = self.tokens[index]
        quoted = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
        words = token.text.upper().split()  # GROUP BY is one token
        return " ".join(words) if not quoted and words and all(_WORD.match(word) for word in words) else ""

    def words(self, index: int, *expected: str) -> bool:
        """Whether these words stand at ``index``."""
        return all(self.word(index + offset) == word for offset, word in enumerate(expected))

    def kind(self, index: int) -> TokenType | None:
        """The type of the token at ``index``, if there is one."""
        return self.tokens[index].token_type if 0 <= index < len(self.tokens) else None

    def find(self, *words: str, start: int = 0) -> int | None:
        """Index of the first of these words outside parentheses, from ``start`` on."""
        depth = 0
        for index in range(start, len(self.tokens)):
            depth += self._step(index)
            if depth == 0 and self.word(index) in words:
                return index
        return None

    def closing(self, index: int) -> int:
        """Index of the parenthesis that closes the one at ``index``. Raises ConfigurationError where there is none."""
        depth = 0
        for place in range(index, len(self.tokens)):
            depth += self._step(place)
            if depth == 0:
                return place
        raise self.part(index, index + 1).error("this parenthesis is not closed; add )")

    def items(self) -> list["Span"]:
        """The parts between the commas outside parentheses."""
        depth, start, parts = 0, 0, []
        for index, token in enumerate(self.tokens):
            depth += self._step(index)
            if depth == 0 and token.token_type == TokenType.COMMA:
                parts.append(self.part(start, index))
                start = index + 1
        return [*parts, self.part(start)]

    def sql(self) -> str:
        """The text without comments and line breaks."""
        text, at = "", None
        for token in self.tokens:
            if at is not None and token.start > at:
                text += " "
            text += self.source.text[token.start : token.end + 1]
            at = token.end + 1
        return text

    def at(self, column: int) -> "Span":
        """The token at a column of ``sql()``."""
        for index in range(len(self.tokens)):
            if column < len(self.part(0, index + 1).sql()):
                return self.part(index, index + 1)
        return self

    def stray(self) -> int | None:
        """Index of the first parenthesis that closes nothing."""
        depth = 0
        for index in range(len(self.tokens)):
            depth += self._step(index)
            if depth < 0:
                return index
        return None

    def error(self, problem: str) -> ConfigurationError:
        """The problem with its line and column, and the line itself with carets under these tokens."""
        place, picture = self.shown()
        return ConfigurationError(f"{place}: {problem}\n{picture}")

    def shown(self) -> tuple[str, str]:
        """(place, picture) of these tokens, as ``StatementText.shown`` has it."""
        return self.source.shown(self.tokens[0].start if self.tokens else self.end, self.end)

    def _step(self, index: int) -> int:
        kind = self.tokens[index].token_type
        return (kind in _OPEN) - (kind in _CLOSE)


def same(one: Span, other: Span) -> bool:
    """Whether two spans are the same but for spaces, comments and the capitals of words."""

    def normal(span: Span) -> Sequence[tuple[TokenType, str]]:
        return [(t.token_type, span.word(i) or t.text) for i, t in enumerate(span.tokens)]

    return normal(one) == normal(other)
