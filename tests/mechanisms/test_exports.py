"""The public names of susurrus.mechanisms: sorted, complete, loaded only when asked for."""

import subprocess
import sys

import pytest

from susurrus import mechanisms


def test_names_are_sorted_and_resolve() -> None:
    assert mechanisms.__all__ == sorted(mechanisms.__all__)
    for name in mechanisms.__all__:
        assert getattr(mechanisms, name).__name__ == name
    assert set(mechanisms.__all__) <= set(dir(mechanisms))
    assert {name for names in mechanisms._HOME.values() for name in names} == set(mechanisms.__all__)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = mechanisms.Nothing


def test_importing_the_errors_loads_no_numerics() -> None:
    code = "import sys, susurrus.mechanisms.errors; sys.exit('numpy' in sys.modules or 'scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
