"""A frame around text, for a terminal. It is a file of its own because every command needs it, also to say what is wrong."""

from rich.panel import Panel
from rich.text import Text


def framed(body: str | Text, title: str | Text, style: str) -> Panel:
    """A frame with a title. ``style`` is the colour of its border."""
    return Panel(body, title=title, title_align="left", border_style=style, padding=(0, 1))
