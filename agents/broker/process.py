"""One broker's files and its Java process.

A process is only signalled while its command line still names the configuration file of this broker. So a recycled process id
cannot hit a stranger.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_LOGGING: Final = {"defaultLogLevel": "warn", "showDateTime": "true", "dateTimeFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"}
_NOTED: Final = ("/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"')
"""In front of a file's name and a command: the process id goes to the file, then the command is that process."""
_LAST_LINES: Final = 20
"""How much of a broker's log an error shows."""


class BrokerProcess:
    """What is in ``home``: ``server.properties``, ``broker.log``, ``pid`` and the directory ``data``."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.properties = home / "server.properties"
        self.log = home / "broker.log"
        self._child: subprocess.Popen[bytes] | None = None

    def write(self, properties: Mapping[str, str]) -> None:
        """Make the home, with these settings."""
        self.home.mkdir(parents=True)
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))

    def format(self, java: str, libs: Path, cluster_id: str) -> subprocess.Popen[str]:
        """Kafka's tool that formats the data directory, running."""
        tool = [java, "-XX:TieredStopAtLevel=1", "-cp", f"{libs}/*", "kafka.tools.StorageTool", "format"]
        # One id in 64 begins with a dash, which is taken for an option if it stands alone.
        command = [*tool, f"--cluster-id={cluster_id}", "-c", str(self.properties)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def launch(self, java: str, libs: Path, options: list[str]) -> None:
        """Start the broker; it is not ready yet. ``options`` are Java's."""
        options = [*options, "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true"]
        options += [f"-Dorg.slf4j.simpleLogger.{name}={value}" for name, value in _LOGGING.items()]
        with open(self.log, "ab") as log:
            # A session of its own: Ctrl-C in the terminal reaches the tests, which then stop the brokers in order. It notes its id
            # itself: this process may be killed before it could, and nobody would find the broker.
            child = subprocess.Popen(
                [
                    *_NOTED,
                    str(self.home / "pid"),
                    java,
                    *options,
                    "-cp",
                    f"{libs}/*",
                    "kafka.Kafka",
                    str(self.properties),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._child = child
        while child.poll() is None and self.pid() is None:
            time.sleep(0.01)

    def pid(self) -> int | None:
        """Process id of the running broker; None also when the id now belongs to another process."""
        if self._child is not None and self._child.poll() is not None:  # reaps it, too
            self._child = None
        try:
            pid = int((self.home / "pid").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return pid if str(self.properties) in command_line(pid) else None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the broker, if it runs."""
        if (pid := self.pid()) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """SIGKILL the broker and wait until it is gone; nothing happens when it is not running."""
        self.send(signal.SIGKILL)
        while self.pid() is not None:
            time.sleep(0.02)
        if self._child is not None:
            self._child.wait()
            self._child = None
        (self.home / "pid").unlink(missing_ok=True)

    def last_words(self) -> str:
        """The end of the log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-_LAST_LINES:])
        except FileNotFoundError:
            return "(no log)"


def command_line(pid: int) -> list[str]:
    """Arguments of a running process; empty when it has ended."""
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            return []
    shown = subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout.split()
