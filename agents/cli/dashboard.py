"""``susurrus dashboard``: the released data as one live page."""

import logging
import signal
import threading
from typing import Annotated

import typer
from rich.text import Text

from susurrus.agents.cli.console import ConfigOption, SqlOption, err, out
from susurrus.agents.cli.given import settings_of
from susurrus.agents.dashboard.serving import NO_CHARTS, serving

PORT = 8470


def dashboard(
    config: ConfigOption = None,
    sql: SqlOption = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Whoever reaches it sees everything that is released.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 takes a free one.")] = PORT,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A host name that requests may ask for, behind a proxy; repeat for more.")
    ] = None,
    windows: Annotated[int, typer.Option(min=1, max=100, help="Newest windows to keep.")] = 8,
    memory: Annotated[
        int, typer.Option(min=16, max=65_536, help="Most MiB of curves to keep: the oldest windows lose theirs first.")
    ] = 512,
) -> None:
    """Serve one live page of what is released: histograms, streams or estimates with error bars, and the budget.

    It reads the public topics and the log of charges. It needs a reader's rights (`susurrus acls --dashboard`) and no secret.
    """
    settings = settings_of(config, sql)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    stop = threading.Event()
    previous = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        with serving(
            settings, host=host, port=port, allowed=allow_host or (), windows=windows, curve_bytes=memory << 20
        ) as server:
            where = Text.assemble(
                f"{settings.pipeline.name}: released data at ", (server.url, "bold"), " (Ctrl-C ends it)"
            )
            out().print(where, soft_wrap=True)
            if not server.charts:
                err().print(NO_CHARTS, markup=False)
            while not stop.wait(1.0):
                pass
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, previous)
