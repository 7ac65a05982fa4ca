"""Plants defects in the compiled readers, one at a time, and says which of them the differential tests do not notice.

    python -m tests.planted_defects avro.rs protobuf.rs --most 100

Each defect is one change of one line in a copy of topics/rust/src, which is built in a folder of its own and tested. What is
printed has survived: either a case is missing, or the change is none (another bound that nothing reaches). A folder
that is named by --folder keeps what cargo made for the next run.
"""

import argparse
import importlib
import importlib.machinery
import importlib.util
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parents[1]
CRATE: Final = ROOT / "topics" / "rust"
_MODULE: Final = "susurrus.topics._compiled"
_SECONDS: Final = 40
"""Of a processor, for the tests of a defect: one may make a loop endless."""
_FORMATS: Final = "tests/agents/formats"
_JSON: Final = ("tests/topics/test_raw_batches.py", "tests/topics/test_values_batches.py")
_COMPUTED: Final = ("tests/agents/expressions/test_typed.py", f"{_FORMATS}/test_computed_programs.py")
_BINARY: Final = (f"{_FORMATS}/test_avro_programs.py", f"{_FORMATS}/test_protobuf_programs.py")
_TAKEN: Final = f"{_FORMATS}/test_taken.py"
TESTS: Final[dict[str, Sequence[str]]] = {
    "avro.rs": (_TAKEN, _BINARY[0]),
    "protobuf.rs": (_TAKEN, _BINARY[1]),
    "bytes.rs": (_TAKEN, *_BINARY),
    "written.rs": (_TAKEN, *_BINARY),
    "framed.rs": (f"{_FORMATS}/test_json_programs.py", *_BINARY),
    "json.rs": _JSON,
    "text.rs": _JSON,
    "numbers.rs": _JSON,
    "coding.rs": (*_JSON, *_BINARY, *_COMPUTED),
    "found.rs": _COMPUTED,
    "kept.rs": _COMPUTED,
    "table.rs": _COMPUTED,
    "results.rs": _COMPUTED,
}
"""What tests each file, the quickest first."""

_READS: Final = {"avro.rs": "impl SlotReader", "protobuf.rs": "impl SlotReader"}
"""Where the reading begins. What stands before checks what Python has compiled, and no record reaches it."""

_SWAPS: Final = (
    (r"(?<![-=<>])>=", ">"), (r"(?<![-<>=])<=", "<"), (r" > ", " >= "), (r" < ", " <= "), (r"==", "!="), (r"!=", "=="),
    (r"&&", "||"), (r" \|\| ", " && "), (r" \+ ", " - "), (r" - ", " + "), (r"\.\.=", ".."), (r"(?<=\d)\.\.(?=[\w(])", "..="),
    (r"\btrue\b", "false"), (r"\bfalse\b", "true"), (r"-i64::from", "i64::from"), (r" \^ ", " | "), (r" << ", " >> "),
    (r" >> ", " << "), (r" & ", " | "), (r" \| ", " & "), (r"\bi32\b", "i64"), (r"\bu32\b", "u64"), (r"\.is_some\(", ".is_none("),
    (r"\.is_none\(", ".is_some("), (r"return None", "return Some(())"), (r"!(?=[a-z(])(?<![a-z_]!)", ""), (r" % ", " / "),
    (r"seconds|nanos(?= =)", "_"), (r"from_le", "from_be"), (r"\ball\b", "any"), (r"\bany\b", "all"),
    (r"div_euclid", "wrapping_div"),
)  # fmt: skip
"""What stands in a line, and what is written instead."""
_NUMBER: Final = re.compile(r"(?<![\w.])(0x[0-9a-f]+|\d[\d_]*)(?![\w.]*[\w])")
_GUARD: Final = re.compile(r"^\s*(\(.*\)|[\w!].*)\.then_some\(\(\)\)\?;\s*$|^\s*(self|cursor|slots|seen)\b[^{]*;\s*$")
"""A statement that may be left out."""


class Defect(NamedTuple):
    """One change. line: from 0."""

    file: str
    line: int
    text: str


def defects(file: str) -> Iterator[Defect]:
    """All of a file, in its order."""
    text = (CRATE / "src" / file).read_text()
    first = text[: max(0, text.find(_READS.get(file, "")))].count("\n")
    for number, line in enumerate(text.splitlines()):
        if number < first or re.match(r"\s*(//|#|use |mod |pub fn|fn |impl|pub struct|struct|type )", line):
            continue
        changed = [
            line[: found.start()] + new + line[found.end() :] for old, new in _SWAPS for found in re.finditer(old, line)
        ]
        for found in _NUMBER.finditer(line):
            value = int(found[0].replace("_", ""), 0)
            changed += [
                f"{line[: found.start()]}{near}{line[found.end() :]}" for near in (value + 1, value - 1) if near >= 0
            ]
        if _GUARD.match(line):
            changed.append("")
        for other in dict.fromkeys(changed):
            yield Defect(file, number, other)


def main(arguments: Sequence[str] | None = None) -> int:
    """The number of defects that survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", default=list(TESTS), help="of topics/rust/src")
    parser.add_argument("--most", type=int, default=50, help="so many of each file, chosen by chance")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--folder", type=Path, help="where the copy is")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if chosen.folder is None else chosen.folder
        survivors = 0
        for name in {test for file in chosen.files for test in TESTS[file]}:
            importlib.import_module(name.removesuffix(".py").replace("/", "."))
        for file in chosen.files:
            every = list(defects(file))
            some = random.Random(chosen.seed).sample(every, min(chosen.most, len(every)))
            survivors += _planted(folder, file, some)
        return survivors


def _planted(folder: Path, file: str, some: Sequence[Defect]) -> int:
    outcomes: dict[str, int] = {}
    first = (CRATE / "src" / file).read_text().splitlines()[0]
    if (outcome := _outcome(folder, Defect(file, 0, first))) != "SURVIVED":
        sys.exit(f"{file}: without a defect it is {outcome!r}; run its tests: {' '.join(TESTS[file])}")
    for defect in some:
        outcome = _outcome(folder, defect)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        if outcome == "SURVIVED":
            before = (CRATE / "src" / file).read_text().splitlines()[defect.line]
            print(f"{file}:{defect.line + 1}\n  - {before.strip()}\n  + {defect.text.strip()}", flush=True)
    print(f"{file}: {outcomes}", flush=True)
    return outcomes.get("SURVIVED", 0)


def _outcome(folder: Path, defect: Defect) -> str:
    copy = folder / "rust"
    shutil.copytree(CRATE, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("target"))
    path = copy / "src" / defect.file
    lines = path.read_text().splitlines()
    lines[defect.line] = defect.text
    path.write_text("\n".join(lines) + "\n")
    built = _build(copy, folder / "target")
    if built is None:
        return "no program"
    child = os.fork()
    if child == 0:
        os._exit(_tested(built, TESTS[defect.file]))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    built.unlink()
    return "SURVIVED" if code == 0 else "noticed" if code > 0 else "broke off"


def _tested(built: Path, files: Sequence[str]) -> int:
    """In a process of its own, which has imported all else: pytest's exit code with what was built."""
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    installed = sys.modules[_MODULE]
    loader = importlib.machinery.ExtensionFileLoader(_MODULE, str(built))
    spec = importlib.util.spec_from_file_location(_MODULE, built, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    assert module is not installed
    for one in list(sys.modules.values()):
        for name in [name for name, value in list(vars(one).items()) if value is installed]:
            setattr(one, name, module)
    sys.modules[_MODULE] = module
    return pytest.main(
        ["-q", "-x", "--assert=plain", "-p", "no:cacheprovider", "-m", "not thorough and not broker", *files]
    )


def _build(copy: Path, target: Path) -> Path | None:
    """The extension; None where the text is no program."""
    quick = {"OPT_LEVEL": "1", "LTO": "off", "CODEGEN_UNITS": "16", "INCREMENTAL": "true", "STRIP": "symbols"}
    environment = {f"CARGO_PROFILE_RELEASE_{name}": value for name, value in quick.items()}
    environment |= {**os.environ, "PYO3_BUILD_EXTENSION_MODULE": "1", "PYO3_PYTHON": sys.executable}
    command = ["cargo", "build", "--quiet", "--locked", "--release", "--target-dir", str(target)]
    ended = subprocess.run(command, cwd=copy, env=environment, capture_output=True, check=False)
    found = target / "release" / "libtopics_compiled.so"
    if ended.returncode != 0:
        return None
    # Each has a name of its own: no process loads two files of one name.
    return Path(shutil.copy(found, target / f"built-{time.monotonic_ns()}.so"))


if __name__ == "__main__":
    sys.exit(min(main(), 100))
