"""The notation of stated formulas, as "y = x t, t = tanh(log(1 + eˣ))" or "[x > 0] g", turned into Python's.

A formula is an expression, after "name =" if that helps to read it, then definitions of names, after commas. A product
needs no sign; σ and Φ alone are those of x. "a if condition else b" and [condition], 1 or 0, are Python's. With an
index, as fⱼ, f_y or pⱼ = …, a name has several entries; Σⱼ is the sum of the product after it.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Iterable, Mapping
from types import CodeType
from typing import Any, NamedTuple

RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ˣʸᶠ", "0123456789+-xyf")
LOWERED = str.maketrans("ᵢⱼₖ₁₂₃₄", "ijk0123", "_")
LETTER = r"[^\W\d_⁰¹²³⁴-⁹ˣʸᶠᵢⱼₖ₁-₄½]"
TOKEN = re.compile(
    rf"(\d+(?:\.\d+)?|½)|([⁰¹²³⁴-⁹⁺⁻ˣʸᶠ]+)|([ᵢⱼₖ₁-₄]|_[a-z](?![a-z_]))|({LETTER}+(?:_{LETTER}{{2,}})*['′]*)|(≤|≥|\S)"
)
KINDS = ("number", "raised", "index", "word", "sign")
SIGNS = {
    "≤": "<=",
    "≥": ">=",
    "−": "-",
    "·": "*",
    "∘": "*",
    "^": "**",
    "=": "==",
    "√": "_8730_",
    "[": "(1.0 if (",
    "]": ") else 0.0)",
}
FUNCTIONS = {"σ": "expit", "Φ": "ndtr", "√": "sqrt"} | {
    name: name for name in ("exp", "log", "sqrt", "tanh", "sinh", "cosh", "erf", "sign", "abs", "max", "min")
}
WORDS = {"if", "else", "and", "or"}


class FormulaError(ValueError):
    """A stated formula that is not in the notation; the message names whose it is, the formula and the place."""


class Token(NamedTuple):
    """A piece of a formula: a number, a raised or lowered letter, a word or a sign."""

    kind: str
    text: str
    place: int


class Scope(dict):
    """Numbers by their names in Python; definitions are computed when they are used, those with an index once."""

    def __init__(
        self, base: dict[str, Any], definitions: Mapping[str, tuple[str, CodeType]], lists: dict[str, Any]
    ) -> None:
        super().__init__(base)
        self.base, self.definitions, self.lists = base, definitions, lists

    def at(self, **names: Any) -> Scope:
        """Return the numbers where indices, or others, have values."""
        return Scope({**self.base, **names}, self.definitions, self.lists)

    def __missing__(self, name: str) -> Any:
        if name not in self.lists:
            index, code = self.definitions[name]
            if not index:
                return self.setdefault(name, eval(code, self))
            self.lists[name] = [eval(code, self.at(**{index: k})) for k in range(self.base["C"])]
        return self.lists[name]


def scope_of(
    one: Any, entries: int, given: Mapping[str, Any], definitions: Mapping[str, tuple[str, CodeType]]
) -> Scope:
    """Return the numbers of formulas; `one` makes others, and a name with an index has so many `entries`."""
    own = {key: _function(one, name) for key, name in FUNCTIONS.items()}
    own |= {"e": math.e, "π": math.pi, "N": one.of, "abs": lambda v: abs(one.of(v)), "C": entries, **given}
    own["Σ"] = lambda part: functools.reduce(operator.add, map(part, range(entries)))
    return Scope({_plain(key): value for key, value in own.items()}, definitions, {})


class Formula:
    """A formula, which may use the `names` given and `definitions`, to which it adds its own."""

    def __init__(self, text: str, names: Iterable[str], definitions: dict[str, Any], owner: str) -> None:
        self.text, self.owner, self.definitions = text, owner, definitions
        parts: list[list[Token]] = [[]]
        depth = 0
        for match in TOKEN.finditer(text):
            token = Token(KINDS[(match.lastindex or 1) - 1], match[0].replace("′", "'"), match.start())
            depth += (token.text in "([") - (token.text in ")]")
            if not depth and token.text in (",", ";"):
                parts.append([])
            else:
                parts[-1].append(token)
        signs = [
            [token.text for token in part[:3]].index("=") if "=" in [t.text for t in part[:3]] else 0 for part in parts
        ]
        self.names = {*names, *(part[0].text for part, n in zip(parts[1:], signs[1:], strict=True) if n)}
        self.main = self._compiled(parts[0][signs[0] + 1 if signs[0] else 0 :])
        for part, n in zip(parts[1:], signs[1:], strict=True):
            if not n:
                raise self._error("a definition, as in t = tanh(x)", part[0].place if part else len(text))
            index = part[1].text.translate(LOWERED) if n == 2 else ""
            definitions[_plain(part[0].text)] = index, self._compiled(part[n + 1 :])

    def __call__(self, scope: Scope) -> Any:
        """Compute the formula from numbers."""
        return eval(self.main, scope)

    def _compiled(self, tokens: list[Token]) -> CodeType:
        """Return tokens as Python code; an error of its syntax is shown at the token where it stands."""
        words, places = self._python([each for token in tokens for each in self._split(token)])
        try:
            return compile("".join(words), self.owner, "eval")
        except SyntaxError as error:
            at, length = 0, (error.offset or 1) - 1
            while at < len(words) - 1 and length >= len(words[at]):
                length, at = length - len(words[at]), at + 1
            raise self._error(f"a formula ({error.msg})", places[at] if places else len(self.text)) from None

    def _split(self, token: Token) -> list[Token]:
        """Return the known names that a word such as βx is made of, the longest first."""
        kind, found, place = token
        known = self.names | {"e", "π", "Σ", *FUNCTIONS} | WORDS
        if kind != "word" or found in known:
            return [token]
        for n in range(len(found) - 1, 0, -1):
            if found[:n] in known:
                return [Token(kind, found[:n], place), *self._split(Token(kind, found[n:], place + n))]
        raise self._error(f"a number or one of {', '.join(sorted(self.names))}", place)

    def _python(self, tokens: list[Token]) -> tuple[list[str], list[int]]:
        """Return the words of the same expression in Python, and where each stands in the text."""
        words: list[str] = []
        places: list[int] = []
        sums: list[int] = []
        ended, bars, depth = False, False, 0
        for i, (kind, found, place) in enumerate(tokens):
            after = tokens[i + 1] if i + 1 < len(tokens) else Token("", "", len(self.text))
            letter = found in ("σ", "Φ")
            call = after.text == "(" and (not letter or after.place == place + 1)
            value = kind == "word" and found not in WORDS | {"Σ"} and (found not in FUNCTIONS or (letter and not call))
            closes = found in (")", "]") or (found == "|" and bars)
            text = SIGNS.get(found, f"N({found.replace('½', '0.5')})" if kind == "number" else found)
            starts = (
                (kind in ("number", "word") and found not in WORDS)
                or found in ("(", "[", "√")
                or (found == "|" and not bars)
            )
            while sums and sums[-1] == depth and (found in ("+", "−", "-", ",") or found in WORDS or closes):
                sums.pop()
                text = f"){text}"
            if kind == "raised":
                text = f"**({found.translate(RAISED)})"
            elif kind == "index":
                summed = tokens[i - 1].text == "Σ"
                text = f"(lambda {found.translate(LOWERED)}: " if summed else f"[{found.translate(LOWERED)}]"
                sums += [depth] * summed
            elif kind == "word":
                if found in FUNCTIONS and not letter and not call:
                    raise self._error(f"parentheses after {found}", after.place)
                text = f" {text} " if found in WORDS else _plain(text) + "(x)" * (letter and not call)
            elif found == "|":
                text, bars, depth = (")" if bars else "abs("), not bars, depth + (-1 if bars else 1)
            words.append("*" * (starts and ended) + text)
            places.append(place)
            depth += (found in ("(", "[")) - (found in (")", "]"))
            ended = kind in ("number", "raised") or closes or (kind == "index" and not summed) or value
        return [*words, ")" * len(sums)], [*places, len(self.text)]

    def _error(self, expected: str, place: int) -> FormulaError:
        found = f"got {self.text[place : place + 12]!r}" if place < len(self.text) else "got its end"
        return FormulaError(f"{self.owner}: {self.text!r}, character {place + 1}: expected {expected}, {found}")


@functools.cache
def _plain(name: str) -> str:
    """Return a name without primes, for Python, which normalizes letters besides."""
    return "".join(f"_{ord(letter)}_" if not letter.isascii() else letter for letter in name).replace("'", "_prime")


def _function(one: Any, name: str) -> Any:
    if name in ("max", "min"):
        return lambda a, b: a if (a >= b if name == "max" else a <= b) else b
    return lambda value: getattr(one.of(value), name)()
