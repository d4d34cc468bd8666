"""The README's example prints what the README says."""

import contextlib
import io
import re
from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_example_prints_what_it_says():
    code, printed = re.search(r"```python\n(import numpy.*?)```\n\nprints\n\n```\n(.*?)```", README, re.DOTALL).groups()
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {})
    assert out.getvalue() == printed
