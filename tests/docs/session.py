"""Runs the session that a page shows, and compares what the commands print with what the page says they print.

    python -m tests.docs.session docs/tutorial/README.md       runs it, and writes what was printed into the page

A page is prose with blocks:

    ```console            lines that begin with "$ " are commands, with the lines up to the next command as their output;
    $ command             a command that ends with " &" runs in the background until the session ends
    output
    ```
    <!-- file: name -->   the next block is the text of this file
    <!-- until: command --> what follows waits until this command succeeds; readers need not wait for a prompt
    <!-- noisy -->        the next block's output changes with the noise: only its shape is compared

A session has a directory, a Kafka and ports of its own: 9092 and 8470 in the page stand for free ones. Numbers are compared as
numbers: any two are alike, because sizes, times and noise differ.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from susurrus.agents.broker.network import free_ports

SECONDS = 240.0
"""The longest that one command, or one wait, may take."""
_PART = re.compile(
    r"^(?:<!-- (?P<word>file|until|noisy)(?:: (?P<what>.*?))? -->|```(?P<language>\w*)\n(?P<body>.*?)^```)$",
    re.M | re.S,
)


@dataclass(slots=True)
class Command:
    """One command, what the page says it prints, and what it printed. noisy: whether only the shape counts."""

    text: str
    expected: str
    noisy: bool
    printed: str = ""


@dataclass(slots=True)
class Session:
    """A page being run."""

    page: str
    directory: Path
    ports: dict[str, str] = field(init=False)
    commands: list[Command] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        kafka, web = free_ports(2)
        self.ports = {"9092": str(kafka), "8470": str(web)}

    def run(self) -> str:
        """Run everything; returns the page with what was printed. Raises AssertionError for a command that fails."""
        written, at, name, noisy = [], 0, "", False
        with contextlib.ExitStack() as stack:
            stack.callback(self._shell, "susurrus kafka stop --purge", check=False)
            for part in _PART.finditer(self.page):
                if part["word"] == "file":
                    name = part["what"]
                elif part["word"] == "until":
                    self._wait(part["what"])
                elif part["word"] == "noisy":
                    noisy = True
                elif name:
                    (self.directory / name).write_text(self._here(part["body"]))
                    name = ""
                elif part["language"] == "console":
                    body = "".join(self._run(command, stack) for command in commands(part["body"], noisy=noisy))
                    written += [self.page[at : part.start("body")], body]
                    at, noisy = part.end("body"), False
            return "".join(written) + self.page[at:]

    def _run(self, command: Command, stack: contextlib.ExitStack) -> str:
        self.commands.append(command)
        if command.text.endswith(" &"):
            stack.enter_context(self._background(command.text.removesuffix(" &")))
        else:
            command.printed = self._shell(command.text)
        return f"$ {command.text}\n{command.printed}"

    def _wait(self, condition: str) -> None:
        deadline = time.monotonic() + SECONDS
        begun = time.monotonic()
        while subprocess.run(self._here(condition), **self._how(), check=False).returncode:  # type: ignore[call-overload]
            assert time.monotonic() < deadline, f"not within {SECONDS:.0f} s: {condition}"
            # A command of ours computes for seconds before it answers: it shall not take the processor from what it waits for.
            time.sleep(min(10.0, max(0.5, 3 * (time.monotonic() - begun))))
            begun = time.monotonic()

    def _shell(self, text: str, *, check: bool = True) -> str:
        done = subprocess.run(self._here(text), **self._how(), check=False)  # type: ignore[call-overload]
        printed = self._there(done.stdout.decode())
        assert not check or done.returncode == 0, f"$ {text}\nexit code {done.returncode}\n{printed}"
        return "".join(f"{line.rstrip()}\n" for line in printed.splitlines())

    @contextlib.contextmanager
    def _background(self, text: str) -> Iterator[None]:
        with (self.directory / "background.log").open("ab") as log:
            how = {**self._how(), "stdout": log, "start_new_session": True}
            del how["timeout"]
            process = subprocess.Popen(f"exec {self._here(text)}", **how)  # type: ignore[call-overload]
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)

    def _how(self) -> dict[str, object]:
        places = [str(Path(sys.executable).parent), os.environ["PATH"]]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("SUSURRUS", "PYTEST"))}
        environment |= {
            "PATH": os.pathsep.join(places),
            "COLUMNS": "100",
            "TERM": "dumb",
            "NO_COLOR": "1",
            "LANG": "C.UTF-8",
        }
        return {
            "shell": True, "cwd": self.directory, "env": environment, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT, "timeout": SECONDS,
        }  # fmt: skip

    def _here(self, text: str) -> str:
        """The page's text with this session's Kafka and ports."""
        for there, here in self.ports.items():
            text = re.sub(rf"\b{there}\b", here, text)
        return re.sub(r"susurrus kafka (start|stop)", rf"\g<0> --directory {self.directory}/kafka", text)

    def _there(self, text: str) -> str:
        for there, here in self.ports.items():
            text = re.sub(rf"\b{here}\b", there, text)
        return text.replace(f"{self.directory}/", "")


def commands(block: str, *, noisy: bool) -> Iterator[Command]:
    """The commands of a console block, with what the page says they print."""
    for text in re.split(r"^\$ ", block, flags=re.M)[1:]:
        lines = text.splitlines()
        end = next(number for number, line in enumerate(lines) if not line.endswith("\\")) + 1
        yield Command("\n".join(lines[:end]), "".join(f"{line}\n" for line in lines[end:]), noisy)


def shape(text: str) -> list[str]:
    """The lines of an output without what may differ: numbers, lengths of bars and frames, spaces, letters of hexadecimal names."""
    found = []
    for line in text.splitlines():
        line = re.sub(r"\b(?=[0-9a-f]*\d)[0-9a-f]{6,}\b", "#", line)
        line = re.sub(r"[-+]?\d[\d,.:TZ-]*", "#", line)
        line = re.sub(r"[█░▓▒┃│╭╮╰╯─━┼●]+", " ", line)
        if line := " ".join(line.split()):
            found.append(line)
    return found


def differences(command: Command) -> list[str]:
    """What the page says and the command did not print, or the other way round."""
    expected, printed = shape(command.expected), shape(command.printed)
    if command.noisy:
        # How many keys there are follows the noise and the moment. How the output begins and ends does not.
        ends = [[line.split()[:3] for line in (lines[:1] + lines[-1:])] for lines in (expected, printed)]
        alike = ends[0] == ends[1] and len(printed) >= min(3, len(expected))
        return [] if alike else [f"$ {command.text}", *command.printed.splitlines()]
    return [f"$ {command.text}", *command.printed.splitlines()] if expected != printed else []


def main(page: Path) -> int:
    """Record the session of a page in the page."""
    with tempfile.TemporaryDirectory(prefix="session-") as directory:
        page.write_text(Session(page.read_text(), Path(directory)).run())
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
