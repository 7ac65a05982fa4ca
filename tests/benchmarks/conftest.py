"""The benchmarks are scripts that import their neighbours; tests do the same."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
