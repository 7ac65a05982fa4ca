"""What a statement says, as the settings that a TOML file would give, and where in the statement each of them stands.

docs/sql.md describes the clauses; clauses.py takes them apart, columns.py reads the selected columns.
"""

import difflib
from dataclasses import dataclass, field
from typing import Any, Final

from sqlglot import TokenType

from susurrus.agents.sql.clauses import clauses
from susurrus.agents.sql.columns import Key, SelectedColumn, selected
from susurrus.agents.sql.grouping import grouping_sets, of_several
from susurrus.agents.sql.inputs import inputs
from susurrus.agents.sql.ranking import ranking
from susurrus.agents.sql.source import Span, StatementText, same
from susurrus.agents.sql.values import (
    Reader,
    calendar_length,
    duration,
    field_or_expression,
    field_or_none,
    instant,
    meant,
    number,
    text,
    unit,
    unit_parts,
    whole,
    word_or_text,
)

ROWTIME: Final = "ROWTIME"
"""Names the record's own timestamp in TUMBLE."""
_LAST_PART: Final = (
    "as a last part, TIMESTAMP '...' is the origin, and 'Europe/Berlin' makes it a day, week or month of a time zone"
)
_WINDOWS: Final = {
    "TUMBLE": f"write TUMBLE(time, INTERVAL '1' DAY); {_LAST_PART}",
    "CUMULATE": f"write CUMULATE(time, INTERVAL '15' MINUTE, INTERVAL '1' DAY): step, then size; {_LAST_PART}",
    "HOP": "write HOP(time, INTERVAL '15' MINUTE, INTERVAL '1' DAY), with TIMESTAMP '...' as a fourth part for the origin, "
    "or 'Europe/Berlin' for days of a time zone",
}
"""The functions that make windows, and how each is written."""
_OPTIONS: Final[dict[str, tuple[str, Reader]]] = {
    "epsilon": ("privacy.epsilon", number),
    "delta": ("privacy.delta", number),
    "privacy_unit_column": ("input.user", unit),
    "min_privacy_units_per_group": ("", whole),
    "max_groups_contributed": ("", whole),
    "max_rows_contributed": ("", whole),
    "max_rows_per_group": ("", whole),
    "group_selection_strategy": ("", word_or_text),
    "remember": ("keys.remember", whole),
    "evidence_windows": ("keys.evidence_windows", whole),
    "strategy": ("privacy.strategy", word_or_text),
    "time_unit": ("input.time_unit", word_or_text),
    "time_format": ("input.time_format", text),
    "time_zone": ("input.time_zone", text),
    "allowed_lateness": ("window.allowed_lateness", duration),
}
"""The options: the setting that each is, if it is one as it stands, and how its value is read."""


@dataclass(slots=True)
class Statement:
    """settings: by dotted name, as a TOML file has them. places: the tokens that each comes from."""

    settings: dict[str, Any] = field(default_factory=dict)
    places: dict[str, Span] = field(default_factory=dict)

    def give(self, name: str, value: Any, place: Span) -> None:
        """One setting."""
        self.settings[name], self.places[name] = value, place


def statement(source: StatementText) -> Statement:
    """Read a statement. Raises ConfigurationError that shows the place and says what to do."""
    parts, found = clauses(source), Statement()
    options = _options(parts.options, found)
    user = found.places["input.user"].part(2)
    found.places["input.user.expression"] = user
    found.places |= {f"input.user.{index}": part for index, part in enumerate(unit_parts(user))}
    keys, columns = selected(parts.select, user)
    _bounds(options, columns, found, grouped=bool(keys))
    given, places = inputs(parts.topic)
    found.settings |= given
    found.places |= places
    if parts.where is not None:
        if not len(parts.where):
            raise parts.where.error("WHERE has no condition; write one, or leave WHERE out")
        found.give("input.where", parts.where.sql(), parts.where)
    groups = parts.group_by.items()
    tumble = _tumble(groups, parts.group_by, found)
    others = [group for group in groups if group is not tumble]
    several = of_several(others)
    if several is None:
        _keys(keys, others, parts.group_by, found)
    else:
        _several(keys, [group for group in others if group is not several], several, found)
    found.give("columns", [column.table for column in columns], parts.select)
    for index, column in enumerate(columns):
        found.places |= {f"columns.{index}": column.place, f"columns.{index}.expression": column.value}
    ranked, places = ranking(parts, [column.table["name"] for column in columns])
    found.settings |= ranked
    found.places |= places
    if parts.emit is not None:
        _emit(parts.emit, found)
    if (slide := found.places.get("window.rolling")) is not None:
        _hop(slide, found)
    return found


def _emit(emit: Span, found: Statement) -> None:
    """Read EMIT, which may repeat the step of CUMULATE."""
    if emit.word(0) != "EVERY":
        raise emit.error("write EMIT EVERY INTERVAL '15' MINUTE")
    every = duration(emit.part(1))
    if found.settings.get("window.trigger_every", every) != every:
        raise emit.error("CUMULATE names another step; leave EMIT out, or write the same interval")
    found.give("window.trigger_every", every, emit)


def _options(span: Span, found: Statement) -> dict[str, tuple[Any, Span]]:
    """The options that are not settings as they stand, with their places."""
    values: dict[str, tuple[Any, Span]] = {}
    for item in span.items() if len(span) else ():
        name = item.word(0).lower()
        if name not in _OPTIONS:
            close = difflib.get_close_matches(name, _OPTIONS, n=1)
            hint = f'did you mean "{close[0]}"?' if close else f"known here: {', '.join(_OPTIONS)}"
            raise item.part(0, 1).error(f"unknown option; {hint}")
        if name in values:
            raise item.part(0, 1).error(f"{name} is given twice; leave one of them out")
        if item.kind(1) != TokenType.EQ:
            raise item.error(f"write {name} = value")
        setting, reader = _OPTIONS[name]
        values[name] = reader(item.part(2)), item
        if setting:
            found.give(setting, values[name][0], item)
    for name in ("epsilon", "delta", "privacy_unit_column"):
        if name not in values:
            raise span.error(f"the option {name} is missing; add {name} = ...")
    if "min_privacy_units_per_group" in values:
        least, place = values["min_privacy_units_per_group"]
        if least < 1:
            raise place.error("a group has at least one user; use 1 or more, or leave it out")
        found.give("keys.minimum_users", least - 1, place)  # that many users or fewer are never published
    if "group_selection_strategy" in values:
        strategy, place = values["group_selection_strategy"]
        if strategy.upper() != "PUBLIC_GROUPS":
            raise place.error(
                "keys are selected with Gaussian noise, as `strategy` says; use PUBLIC_GROUPS (only the keys that "
                "keys.declared lists), or leave it out"
            )
        found.give("keys.discover", False, place)
    return values


def _bounds(
    options: dict[str, tuple[Any, Span]], columns: list[SelectedColumn], found: Statement, *, grouped: bool
) -> None:
    """What a user may contribute. grouped: whether there are keys; without any there is one group, and any number allows it."""
    groups, rows, per_group = (
        options.get(name) for name in ("max_groups_contributed", "max_rows_contributed", "max_rows_per_group")
    )
    for value, place in (given for given in (groups, rows, per_group) if given is not None):
        if value < 1:
            raise place.error("use 1 or more; without a bound there is no guarantee")
    by_group = next((column.by_group for column in columns if column.by_group is not None), None)
    if per_group is not None:
        found.give("bounds.max_records_per_key", *per_group)
        if by_group is not None and per_group[0] != 1:
            raise by_group.error(
                "contribution_bounds_per_group bounds a user's sum, and with max_rows_per_group above 1 only each row "
                "is bounded; write CLAMPED BETWEEN lower AND upper"
            )
    elif by_group is not None or groups is not None:
        found.give("bounds.max_records_per_key", 1, by_group or groups[1])  # type: ignore[index]
    if rows is not None:
        found.give("bounds.max_records_per_user", *rows)
    if groups is not None and grouped:
        each = 1 if per_group is None else per_group[0]
        if rows is None:
            found.give("bounds.max_records_per_user", groups[0] * each, groups[1])
        if rows is not None or each > 1:
            found.give("bounds.max_keys_per_user", *groups)


def _tumble(groups: list[Span], place: Span, found: Statement) -> Span:
    """Read the window: TUMBLE, HOP, which adds the rolling view, or CUMULATE. Returns its part of GROUP BY.

    CUMULATE(time, step, size) is TUMBLE(time, size) with a release at every step, of all that has come since the window began.
    """
    tumbles = [group for group in groups if group.word(0) in _WINDOWS and group.kind(1) == TokenType.L_PAREN]
    if not tumbles:
        other = next((g for g in groups if g.word(0) == "SESSION"), None)
        if other is not None:
            raise other.error("windows do not overlap, and do not depend on data; use TUMBLE")
        raise place.error("the window is missing; add TUMBLE(ROWTIME, INTERVAL '1' DAY), or a field with the time")
    if len(tumbles) > 1:
        raise tumbles[1].error(f"there are two windows; leave one {tumbles[1].word(0)} out")
    [tumble] = tumbles
    name = tumble.word(0)
    arguments = tumble.part(2, tumble.closing(1))
    if tumble.closing(1) != len(tumble) - 1:
        raise tumble.part(tumble.closing(1) + 1).error(f"nothing follows {name}(...); put a comma before the next key")
    parts = arguments.items()
    if name == "HOP" and len(parts) > 2:
        found.give("window.rolling", True, parts.pop(1))
    if name == "CUMULATE":
        if not 3 <= len(parts) <= 4:
            raise tumble.error(_WINDOWS[name])
        found.give("window.trigger_every", duration(parts[1]), parts.pop(1))
    if not 2 <= len(parts) <= 3:
        raise tumble.error(_WINDOWS[name])
    if (hint := meant(parts[0])) is not None and field_or_none(parts[0]) is None:
        raise parts[0].error(f"{hint}, or ROWTIME for the record's own timestamp")
    if not len(parts[0]):
        raise tumble.error("name the field with the event time, or ROWTIME for the record's own timestamp")
    time = field_or_expression(parts[0])
    if time == "kafka":
        raise parts[0].error('a field called "kafka" cannot be named; use ROWTIME for the record\'s own timestamp')
    found.give("input.time", "kafka" if parts[0].word(0) == ROWTIME and len(parts[0]) == 1 else time, parts[0])
    if len(parts) == 3 and parts[2].kind(0) == TokenType.STRING:
        found.give("window.length", calendar_length(parts[1]), parts[1])
        found.give("window.time_zone", text(parts[2]), parts[2])
    else:
        found.give("window.length", duration(parts[1]), parts[1])
        if len(parts) == 3:
            found.give("window.origin", instant(parts[2]), parts[2])
    return tumble


def _hop(slide: Span, found: Statement) -> None:
    """The rolling view moves with each release, so a hop is the time between releases."""
    if duration(slide) != found.settings["window.trigger_every"]:
        raise slide.error(
            "HOP is a view of released rows, which moves with each release; hop by the time of EMIT EVERY. Windows of their own "
            "of which n overlap would have sqrt(n) times the noise: 4.9 times for a day in hops of an hour"
        )


def _several(keys: list[Key], plain: list[Span], several: Span, found: Statement) -> None:
    """GROUPING SETS, ROLLUP or CUBE, and what stands beside it. The order of the key's parts is that of the selected keys."""

    def key_of(group: Span) -> Key:
        if (key := next((key for key in keys if _is(key, group)), None)) is None:
            raise group.error(meant(group) or "this is grouped by and not selected; select it, or leave it out")
        if (other := _in_other_case(key.value, group)) is not None:
            raise group.error(f"{' and '.join(other)} are different fields, because upper and lower case matter")
        return key

    sets = grouping_sets(several, plain, keys, key_of)
    found.give("input.key", [key.setting for key in keys], several)
    found.places |= {f"input.key.{index}": key.value for index, key in enumerate(keys)}
    if keys:  # the empty set alone is what no GROUP BY is, too
        found.give("input.grouping_sets", sets, several)


def _keys(keys: list[Key], groups: list[Span], place: Span, found: Statement) -> None:
    """The selected keys must be the grouped ones, in the same order: the order of the key's parts. Without any, all records have
    one key."""
    for index, group in enumerate(groups):
        if not len(group):
            raise place.error("a part of GROUP BY is empty; write a key between the commas")
        if index >= len(keys) or not _is(keys[index], group):
            if any(_is(key, group) for key in keys):
                raise group.error("the keys are selected in another order; use one order, that of the key's parts")
            hint = meant(group)
            if (
                index < len(keys)
                and keys[index].alias is not None
                and group.sql().lower() == str(keys[index].alias).lower()
            ):
                hint = f"it is selected as {keys[index].alias}, and upper and lower case matter; write GROUP BY {keys[index].alias}"
            raise group.error(hint or "this is grouped by and not selected; select it, or leave it out")
        if (other := _in_other_case(keys[index].value, group)) is not None:
            raise group.error(
                f"{' and '.join(other)} are different fields, because upper and lower case matter; write the field as the records "
                "do"
            )
    if len(keys) > len(groups):
        raise keys[len(groups)].place.error("this is selected and not grouped by; add it to GROUP BY, or leave it out")
    found.give("input.key", [key.setting for key in keys], place)
    found.places |= {f"input.key.{index}": key.value for index, key in enumerate(keys)}


def _in_other_case(one: Span, other: Span) -> tuple[str, str] | None:
    """The first field whose name differs in upper and lower case only. Words before a parenthesis are functions, and those with a
    type of their own may be SQL's, except in a path."""
    for index, (a, b) in enumerate(zip(one.tokens, other.tokens, strict=False)):
        name = one.kind(index) == TokenType.VAR and one.kind(index + 1) != TokenType.L_PAREN
        if a.text != b.text and a.text.lower() == b.text.lower() and (name or field_or_none(one) is not None):
            return a.text, b.text
    return None


def _is(key: Key, group: Span) -> bool:
    return same(key.value, group) or (key.alias is not None and field_or_none(group) == key.alias)
