"""What all commands share: the consoles, the options ``--config`` and ``--sql``, and one way to fail.

Results go to standard output and everything else to standard error, so that output can be piped.
"""

import logging
import re
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from susurrus.agents import logs
from susurrus.agents.cli.helps import readable
from susurrus.agents.display.panels import framed
from susurrus.agents.runtime.ending import DISK_UNUSABLE, MISCONFIGURED
from susurrus.mechanisms.errors import StoreUnusable, SusurrusError

_log = logging.getLogger(__name__)

FAILED = MISCONFIGURED
"""Exit code of every failure that an operator can fix."""
INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""
DEFECT = 70
"""Exit code of a defect in this program (EX_SOFTWARE of sysexits.h)."""

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="The pipeline's TOML file; SUSURRUS__SECTION__FIELD variables override it."),
]

SqlOption = Annotated[
    Path | None,
    typer.Option("--sql", help="The pipeline's SQL file: what is published; --config then says how it runs."),
]


def out() -> Console:
    """Standard output, as it is now: tests and pipes replace it."""
    return Console(highlight=False, soft_wrap=False)


def err() -> Console:
    """Standard error."""
    return Console(stderr=True, highlight=False)


class Guarded(TyperGroup):
    """Turns errors into one readable panel and an exit code; ``--verbose`` adds the traceback."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, with help that can be read."""
        found = super().get_command(ctx, cmd_name)
        return found if found is None else readable(found)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The page of all commands."""
        readable(self)
        super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; SusurrusError and Kafka's errors end with code 2, anything unforeseen with code 70."""
        try:
            return super().invoke(ctx)
        except SusurrusError as error:
            code = DISK_UNUSABLE if isinstance(error, StoreUnusable) else FAILED
            fail(title_of(error), str(error), code, verbose=_verbose(ctx))
        except KeyboardInterrupt:
            err().print("Stopped.")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            sys.stderr.close()  # the reader of our output went away; an error at exit would help no one
            raise typer.Exit(141) from None
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            if type(error).__module__.startswith(("click", "typer")):
                raise  # usage errors are typer's own panels
            if kafka := _kafka_text(error):
                fail("Kafka", kafka, FAILED, verbose=_verbose(ctx))
            fail(
                "Unexpected error",
                f"{type(error).__name__}: {error}\nThis is a defect; please report it with what --verbose shows.",
                DEFECT,
                verbose=_verbose(ctx),
            )


def fail(title: str, message: str, code: int, *, verbose: bool) -> None:
    """Print one panel to standard error, with the traceback of the exception at hand if ``verbose``, and exit.

    Where the log is JSON, the failure is a line of it instead.
    """
    if logs.writes_json():
        _log.critical("%s: %s", title, message)
        raise typer.Exit(code)
    console = err()
    if verbose:
        console.print(Text(traceback.format_exc().rstrip(), style="dim"))
    said, commands = message_and_commands(message)
    body = Text("\n").join(_problem(line) for line in said)
    console.print(framed(body, f"[bold]{title}[/bold]", "red"))
    for command in commands:
        console.print(Text(command), soft_wrap=True)
    raise typer.Exit(code)


def message_and_commands(message: str) -> tuple[list[str], list[str]]:
    """The lines of a message, and the indented ones among them: commands to copy, which a frame must not break."""
    lines = message.splitlines()
    commands = [line for line in lines if line.startswith("    ")]
    return [line for line in lines if line not in commands], commands


def title_of(error: SusurrusError) -> str:
    """The title of the panel for this kind of error."""
    names = {
        "ConfigurationError": "The configuration needs a change",
        "BudgetExhausted": "The privacy budget is spent",
        "ReplayMismatch": "Refused: published data would change",
        "PrivacyError": "Refused: the guarantee would break",
        "Refusal": "Refused",
        "RetryableRefusal": "Refused",
        "StoreUnusable": "The local disk cannot be used",
    }
    return names.get(type(error).__name__, "This did not work")


def _problem(line: str) -> Text:
    """One problem: the place in bold, the rest as it is."""
    place, colon, rest = line.partition(": ")
    counted = re.sub(r'^column \d+( \(".*"\))?|, number \d+', "", place.split(" = ")[0])
    if not colon or " " in counted.replace('kafka.properties."', ""):
        return Text(line)
    return Text.assemble((place, "bold"), colon, rest)


def _verbose(ctx: Any) -> bool:
    return bool(ctx.find_root().params.get("verbose"))


def _kafka_text(error: Exception) -> str:
    """A broker's error in words, or nothing when it is not one."""
    if type(error).__name__ != "KafkaException" or not error.args:
        return ""
    reason = error.args[0]
    code, text = getattr(reason, "name", lambda: "")(), getattr(reason, "str", lambda: str(reason))()
    hints = {
        (
            "_TRANSPORT",
            "_ALL_BROKERS_DOWN",
            "_TIMED_OUT",
        ): "Check kafka.bootstrap_servers, and that the brokers can be reached from here.",
        ("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED"): "Check the sasl.* properties under kafka.properties.",
        ("_SSL",): "Check the ssl.* properties under kafka.properties.",
        ("TOPIC_AUTHORIZATION_FAILED",): "Grant this user access to the topics with the pipeline's prefix.",
        ("GROUP_AUTHORIZATION_FAILED",): "Grant this user access to the groups with the pipeline's prefix.",
        ("CLUSTER_AUTHORIZATION_FAILED",): "Grant this user idempotent writes and topic creation.",
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED",): "Grant this user the transactional ids with the pipeline's prefix.",
    }
    return "\n".join([f"{code}: {text}", *(hint for codes, hint in hints.items() if code in codes)])
