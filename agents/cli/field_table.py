"""The fields that some records of a topic have: names, types and how often; values only for who asks for raw data."""

import json

from rich.table import Table
from rich.text import Text

from susurrus.agents.cli.letters import printed
from susurrus.agents.operations.look import MEMBERS, Found


def field_table(found: Found, *, most: int, values: bool) -> Table:
    """most: fields that are shown. values: also one value of each, which is raw data."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    counted = "records" if found.rows in (0, found.records - found.tombstones) else "rows"
    number = found.records if counted == "records" else found.rows
    titles = ("field", "type", f"in {number:,} {counted}")
    for title in (*titles, *(["one value (raw data)"] if values else [])):
        table.add_column(title, overflow="fold")
    for name, seen in list(found.named().items())[:most]:
        often = f"{seen.present:,}" + (f", {seen.nulls:,} null" if 0 < seen.nulls < seen.present else "")
        often = "" if MEMBERS in name else often
        value = [Text(printed(json.dumps(seen.value, ensure_ascii=False, default=str), 40))] if values else []
        table.add_row(Text(printed(name)), Text(seen.type), often, *value)
    if len(found.fields) > most:
        table.add_row(Text(f"… {len(found.fields) - most:,} more", style="dim"))
    return table
