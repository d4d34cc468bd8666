"""Pages whose code prints what they say."""

import contextlib
import io
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"```python\n(.*?)```\n\nprints\n\n```text\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("page", ["program_cost", "several_inputs"])
def test_the_code_prints_what_the_page_says(page):
    blocks = BLOCK.findall((DOCS / f"{page}.md").read_text())
    assert blocks
    for code, printed in blocks:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code, {})
        assert out.getvalue() == printed
