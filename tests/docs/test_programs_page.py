"""docs/programs.md: its blocks run and print what it says, and its program is the one that is printed."""

import contextlib
import importlib.util
import io
import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "programs.md").read_text()
BLOCK = re.compile(r"^```python( jax)?\n(.*?)^```(?:\n\nprints\n\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)


def test_the_blocks_print_what_the_page_says():
    scope = {}
    exec("import numpy as np", scope)
    for jax, code, printed in BLOCK.findall(PAGE):
        if jax and importlib.util.find_spec("jax") is None:
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, "docs/programs.md", "exec"), scope)
        assert out.getvalue() == (printed or f"{scope['program']}\n"), code
    function = "def program(" + scope["program"].source.split("def program(")[1]
    pieces = re.findall(r"^```py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert "\n".join(pieces).split("\n") == function.split("\n")


def test_derivations_of_what_it_shows_link_to_it():
    for page in ("diag_hessian", "diag_ggn", "diag_ggn_mc", "kfac", "kflr", "sequential", "README"):
        assert "](../programs.md)" in (DOCS / "derivations" / f"{page}.md").read_text(), page
