"""What a short-lived broker starts from, so that it need not make it: half of a start is loading classes, a quarter formatting.

``classes.jsa``: the classes that a broker loads, as Java has them in memory after it has read and verified them. Java itself checks
that they are of the same Java and the same JARs, and otherwise loads classes as usual. ``data``: a directory as Kafka's tool
has formatted it. Who starts many brokers makes the two once (tests/prepared.py).
"""

import base64
import re
import shutil
import uuid
from pathlib import Path
from typing import Final

CLASSES: Final = "classes.jsa"
DATA: Final = "data"
"""The name of the data directory, here and beside each node's settings."""
QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Java's options for a process that is soon over. Classes serve only a Java with the options under which they were recorded."""
_IDENTITY: Final = "meta.properties"


def class_options(prepared: Path) -> list[str]:
    """Java's options for a broker that takes the classes from there; none where there are no classes."""
    archive = prepared / CLASSES
    return [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


def new_id() -> str:
    """An id of a cluster or a directory, as Kafka writes it."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def copy_formatted(prepared: Path, data: Path, *, cluster_id: str, node_id: int) -> bool:
    """Make the data directory of a new broker. False where there is none to copy."""
    if not (prepared / DATA).is_dir():
        return False
    shutil.copytree(prepared / DATA, data)
    # All else in it is the same for every broker of a version.
    own = {"cluster.id": cluster_id, "node.id": str(node_id), "directory.id": new_id()}
    text = (data / _IDENTITY).read_text()
    for name, value in own.items():
        text = re.sub(rf"(?m)^{re.escape(name)}=.*$", f"{name}={value}", text)
    (data / _IDENTITY).write_text(text)
    return True
