"""The notation of stated formulas, as "y = x t, t = tanh(log(1 + eˣ))" or "[x > 0] g", turned into Python's.

A formula is an expression, after "name =" if that helps to read it, then definitions of names, after commas. A product
needs no sign; σ and Φ alone are those of x. "a if condition else b" and [condition], 1 or 0, are Python's. With an
index, as fⱼ, f_y or pⱼ = …, a name has several entries; Σⱼ is the sum of the product after it.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType
from typing import Any, NamedTuple

RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ˣʸᶠ", "0123456789+-xyf")
LOWERED = str.maketrans("ᵢⱼₖ₁₂₃₄", "ijk0123", "_")
LETTER = r"[^\W\d_⁰¹²³⁴-⁹ˣʸᶠᵢⱼₖ₁-₄½]"
TOKEN = re.compile(
    rf"(?P<number>\d+(?:\.\d+)?|½)|(?P<raised>[⁰¹²³⁴-⁹⁺⁻ˣʸᶠ]+)|(?P<index>[ᵢⱼₖ₁-₄]|_[a-z](?![a-z_]))"
    rf"|(?P<word>√|{LETTER}+(?:_{LETTER}{{2,}})*['′]*)|(?P<open>[(\[])|(?P<close>[)\]])|(?P<sign>≤|≥|\S)"
)
NAMES = ("exp", "log", "sqrt", "sin", "cos", "tan", "arctan", "tanh", "sinh", "cosh", "erf", "sign", "abs", "max",
         "min")  # fmt: skip
FUNCTIONS = {"σ": "expit", "Φ": "ndtr", "√": "sqrt"} | dict(zip(NAMES, NAMES, strict=True))
WORDS = {word: f" {word} " for word in ("if", "else", "and", "or")}
SIGNS = {"≤": "<=", "≥": ">=", "−": "-", "·": "*", "∘": "*", "^": "**", "=": "=="}
SIGNS |= {"[": "(1.0 if (", "]": ") else 0.0)"} | WORDS


class FormulaError(ValueError):
    """A stated formula that is not in the notation; the message names whose it is, the formula and the place."""


class Token(NamedTuple):
    """A piece of a formula: its kind is the name of a group in TOKEN."""

    kind: str
    text: str
    place: int


def scope_of(one: Any, entries: int, given: Mapping[str, Any], definitions: Mapping[str, CodeType]) -> dict[str, Any]:
    """Return the numbers of formulas; `one` makes others, and a name with an index has so many `entries`."""
    own: dict[str, Any] = {"π": math.pi, "N": one.of, "C": entries}
    own |= {key: functools.partial(_applied, one, name) for key, name in FUNCTIONS.items()}
    own |= {key: [*map(one.of, v)].__getitem__ if isinstance(v, list) else v for key, v in given.items()}
    own["Σ"] = lambda part: functools.reduce(operator.add, map(part, range(entries)))
    scope = {plain(key): one.of(v) if isinstance(v, float) else v for key, v in own.items()} | {plain("e"): math.e}
    scope.update({plain(name): eval(code, scope) for name, code in definitions.items()})
    return scope


class Formula:
    """A formula, which may use the `names` given and `definitions`, to which it adds its own."""

    def __init__(self, text: str, names: Iterable[str], definitions: dict[str, CodeType], owner: str) -> None:
        self.text, self.owner, self.definitions = text, owner, definitions
        parts: list[list[Token]] = [[]]
        depth = 0
        for match in TOKEN.finditer(text):
            token = Token(str(match.lastgroup), match[0].replace("′", "'"), match.start())
            depth += (token.kind == "open") - (token.kind == "close")
            if not depth and token.text in (",", ";"):
                parts.append([])
            else:
                parts[-1].append(token)
        heads = [next((n for n, each in enumerate(part) if each.text == "=" and part[0].kind == "word"
                       and all(between.kind == "index" for between in part[1:n])), 0) for part in parts]  # fmt: skip
        defined = {part[0].text for part, head in zip(parts[1:], heads[1:], strict=True) if head}
        self.names, self.defined = {*names, *defined}, {*definitions, *defined}
        self.main = self._compiled(parts[0][heads[0] + (heads[0] > 0) :])
        for part, head in zip(parts[1:], heads[1:], strict=True):
            if not head:
                raise self._error("a definition, as in t = tanh(x)", part[0].place if part else len(text))
            index = plain(part[1].text.translate(LOWERED)) if head == 2 else ""
            definitions[part[0].text] = self._compiled(part[head + 1 :], f"lambda {index}: ")

    def __call__(self, scope: dict[str, Any], **indices: Any) -> Any:
        """Compute the formula from numbers, where indices, or others, have values."""
        scope.update({plain(name): value for name, value in indices.items()})
        return eval(self.main, scope)

    def _compiled(self, tokens: list[Token], before: str = "") -> CodeType:
        """Return tokens as Python code; an error of its syntax is shown at the token where it stands."""
        tokens = [*itertools.chain.from_iterable(map(self._split, tokens)), Token("", "", len(self.text))]
        words = [before, *self._python(tokens)]
        try:
            return compile("".join(words), self.owner, "eval")
        except SyntaxError as error:
            at = bisect.bisect([*itertools.accumulate(map(len, words))], (error.offset or 1) - 1)
            place = tokens[min(max(at, 1), len(tokens)) - 1].place
            raise self._error(f"a formula ({error.msg})", place) from None

    def _split(self, token: Token) -> Iterator[Token]:
        """Yield the known names that a word such as βx is made of, the longest first."""
        kind, rest, place = token
        while kind == "word" and rest:
            known = self.names | {"e", "π", "Σ", *FUNCTIONS, *WORDS}
            found = next((rest[:n] for n in range(len(rest), 0, -1) if rest[:n] in known), "")
            if not found:
                raise self._error(f"a number or one of {', '.join(sorted(self.names))}", place)
            yield Token("sign" if found in WORDS else kind, found, place)
            rest, place = rest[len(found) :], place + len(found)
        if rest:
            yield token

    def _python(self, tokens: list[Token]) -> list[str]:
        """Return each token's part of the same expression in Python."""
        words: list[str] = []
        sums: list[int] = []
        depth, ended, bars = 0, False, itertools.cycle(("open", "close"))
        for before, (kind, text, place), after in zip([tokens[-1], *tokens], tokens, [*tokens[1:], tokens[-1]]):
            kind = next(bars) if text == "|" else kind
            alone = text in ("σ", "Φ") and not (after.text == "(" and after.place == place + 1)
            if kind == "word" and text in FUNCTIONS and not alone and after.text != "(":
                raise self._error(f"parentheses after {text}", after.place)
            if text == "Σ" and after.kind != "index":
                raise self._error("an index after Σ, as in Σⱼ", after.place)
            word = "*" if ended and kind in ("number", "word", "open") else ""
            while sums and sums[-1] == depth and (kind in ("", "close") or text in {"+", "−", "-", ",", *WORDS}):
                sums.pop()
                word += ")"
            if kind == "number":
                word += f"{plain('N')}({text.replace('½', '0.5')})"
            elif kind == "raised":
                word += f"**({re.sub('[a-z]', lambda m: plain(m[0]), text.translate(RAISED))})"
            elif kind == "index" and before.text == "Σ":
                word += f"(lambda {plain(text.translate(LOWERED))}: "
                sums.append(depth)
            elif kind == "index":
                word += f"({plain(text.translate(LOWERED))})"
            elif kind == "word":
                called = "()" * (text in self.defined and after.kind != "index")
                word += plain(text) + (f"({plain('x')})" if alone else called)
            elif text == "|":
                word += f"{plain('abs')}(" if kind == "open" else ")"
            else:
                word += SIGNS.get(text, text)
            words.append(word)
            depth += (kind == "open") - (kind == "close")
            value = kind == "word" and text != "Σ" and (text not in FUNCTIONS or alone)
            ended = value or kind in ("number", "raised", "close") or (kind == "index" and before.text != "Σ")
        return words

    def _error(self, expected: str, place: int) -> FormulaError:
        found = f"got {self.text[place : place + 12]!r}" if place < len(self.text) else "got its end"
        return FormulaError(f"{self.owner}: {self.text!r}, character {place + 1}: expected {expected}, {found}")


def plain(name: str) -> str:
    """Return a name as Python takes it: it has digits for an index, and letters that it does not normalize."""
    return name if name.isdigit() else "v" + name.encode().hex()


def _applied(one: Any, name: str, *values: Any) -> Any:
    """Compute a function of the notation."""
    first, *others = map(one.of, values)
    if others:
        return max(first, *others) if name == "max" else min(first, *others)
    return abs(first) if name == "abs" else getattr(first, name)()
