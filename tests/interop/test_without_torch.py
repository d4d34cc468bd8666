"""Without torch, the functions that need it name the extra, and nothing else needs it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("call", "name"), [("from_torch(None, None)", "from_torch"), ("to_torch(None)", "to_torch")])
def test_the_extra_is_named(call, name):
    code = f"import sys; sys.modules['torch'] = None; import gbackprop as gb; gb.interop.{call}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    words = f"gb.interop.{name}: the package 'torch' is not installed; pip install \"gbackprop[torch]\"\n"
    assert done.stderr.endswith(words), done.stderr
