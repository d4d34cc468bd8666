"""Elements of HTML and SVG. Text is escaped unless it is made here, so that what a user wrote cannot become markup."""

from __future__ import annotations

from html import escape
from typing import Any


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


VOID = ("br", "meta")
"""Elements without content."""


def tag(name: str, /, *children: Any, **attributes: Any) -> Markup:
    """Return an element of the page."""
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        words.append(key if value is True else f'{key}="{escape(_text(value))}"')
    opening = f"<{' '.join(words)}>"
    return Markup(opening if name in VOID else f"{opening}{join(*children)}</{name}>")


def join(*children: Any) -> Markup:
    """Elements and text, one after the other."""
    parts: list[str] = []
    for child in children:
        if isinstance(child, (list, tuple)):
            parts.append(join(*child))
        elif child is not None:
            parts.append(child if isinstance(child, Markup) else escape(_text(child)))
    return Markup("".join(parts))


def _text(value: Any) -> str:
    """Return a number short, and a string without characters that no page may hold."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return "".join(c for c in str(value) if c.isprintable() or c in "\n\t")
