"""Findings for a terminal: as a framed notice, and as paragraphs. What is to be copied is never broken."""

import textwrap
from collections.abc import Iterator, Sequence

from rich.panel import Panel
from rich.text import Text

from susurrus.agents.cli.console import message_and_commands
from susurrus.agents.display.panels import framed
from susurrus.agents.finding import Finding


def notice(finding: Finding, title: str | Text, style: str) -> Iterator[Panel | Text]:
    """What was found in a frame with what to do, and below it the lines to copy."""
    said, commands = message_and_commands(finding.action)
    body = Text(finding.text)
    if said:
        body.append_text(Text.assemble("\n", ("What to do: ", "bold"), "\n".join(said)))
    yield framed(body, title, style)
    yield from _copied(commands)


def paragraphs(findings: Sequence[Finding], width: int) -> Iterator[Text]:
    """What keeps records out of the result, numbered where there are several."""
    if findings:
        yield Text("what keeps records out of the result" + (", most first" if len(findings) > 1 else ""), style="bold")
    for number, finding in enumerate(findings, start=1):
        lead = f"{number}. " if len(findings) > 1 else ""
        indent = " " * len(lead)
        text = _wrapped(lead + finding.text, indent, width)
        text.stylize("bold")
        yield text
        yield _wrapped(indent + finding.why, indent, width)
        said, commands = message_and_commands(finding.action)
        end = "" if commands else "."
        action = _wrapped(f"{indent}What to do: {' '.join(said)}{end}", indent, width)
        action.highlight_words(["What to do:"], "bold")
        yield action
        yield from _copied(commands)


def _copied(commands: Sequence[str]) -> Iterator[Text]:
    yield from (Text(command, no_wrap=True, overflow="ignore") for command in commands)


def _wrapped(text: str, indent: str, width: int) -> Text:
    return Text("\n".join(textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)))
