"""Several groupings in one GROUP BY: GROUPING SETS, ROLLUP and CUBE, as the sets of selected keys that they stand for.

GROUP BY GROUPING SETS ((country), (country, city), ()), TUMBLE(...)   a part beside it belongs to every set
GROUP BY ROLLUP (country, city), TUMBLE(...)                            (country, city), (country), ()
GROUP BY CUBE (country, device), TUMBLE(...)                            all subsets
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Final

from sqlglot import TokenType

from susurrus.agents.sql.columns import Key
from susurrus.agents.sql.source import Span

WORDS: Final = ("GROUPING SETS", "ROLLUP", "CUBE")
_MOST_OF_CUBE: Final = 4
_WRITE: Final = "write GROUPING SETS ((country), (country, city), ())"


def of_several(groups: Sequence[Span]) -> Span | None:
    """The part of GROUP BY that makes several groupings; None where there is none. Raises ConfigurationError for two."""
    found = [group for group in groups if group.word(0) in WORDS and group.kind(1) == TokenType.L_PAREN]
    if len(found) > 1:
        raise found[1].error("there are two of GROUPING SETS, ROLLUP and CUBE; write all sets in one GROUPING SETS")
    return found[0] if found else None


def grouping_sets(
    several: Span, plain: Sequence[Span], keys: Sequence[Key], key_of: Callable[[Span], Key]
) -> list[list[str]]:
    """The names of the parts of each set, in the order of the selected keys.

    plain: what else is grouped by. key_of: the selected key that a part means. Raises ConfigurationError, also for a key that is
    selected and in no set.
    """
    if several.closing(1) != len(several) - 1:
        raise several.part(several.closing(1) + 1).error("a comma is missing before this")
    items = several.part(2, several.closing(1)).items()
    if several.word(0) == "GROUPING SETS":
        sets = [_parts(item) for item in items]
    else:
        units = [_parts(item) for item in items]
        if several.word(0) == "CUBE" and len(units) > _MOST_OF_CUBE:
            raise several.error(f"CUBE of {len(units)} makes {2 ** len(units)} groupings of one budget; {_WRITE}")
        chosen = [units[:n] for n in range(len(units), -1, -1)]
        if several.word(0) == "CUBE":
            chosen = [list(some) for n in range(len(units), -1, -1) for some in combinations(units, n)]
        sets = [[part for unit in some for part in unit] for some in chosen]
    found = []
    for parts in sets:
        wanted = [key_of(part) for part in [*plain, *parts]]
        found.append([name_of(key) for key in keys if key in wanted])
    for key in keys:
        if not any(name_of(key) in names for names in found):
            raise key.place.error("this is selected and in no grouping set; add it to one, or leave it out")
    return found


def name_of(key: Key) -> str:
    """What a part of the key is called."""
    return key.setting if isinstance(key.setting, str) else key.setting["name"]


def _parts(item: Span) -> list[Span]:
    """The parts of one set: ``(a, b)``, ``a`` or ``()``."""
    if item.kind(0) == TokenType.L_PAREN and item.closing(0) == len(item) - 1:
        item = item.part(1, len(item) - 1)
        if not len(item):
            return []
        parts = item.items()
    else:
        parts = [item]
    if any(not len(part) for part in parts):
        raise item.error(f"a part is missing; {_WRITE}")
    return parts
