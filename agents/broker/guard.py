"""The process beside a throw-away cluster: it ends the cluster when the cluster's owner is gone, even if that was killed.

Started as ``python -m susurrus.agents.broker.guard DIRECTORY`` with a pipe from the owner as its standard input.
"""

import contextlib
import shutil
import signal
import sys
from pathlib import Path

from susurrus.agents.broker.cluster import KafkaCluster


def guard(directory: Path) -> None:
    """Wait until the owner is gone, however it went; then end the cluster."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.buffer.read()
    while directory.exists():
        with contextlib.suppress(FileNotFoundError):
            KafkaCluster.open(directory).stop(graceful=False)
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    guard(Path(sys.argv[1]))
