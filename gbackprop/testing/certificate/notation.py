"""The notation of stated formulas, as "y = x t, t = tanh(log(1 + eˣ))" or "[x > 0] g", turned into Python's.

A formula is an expression, after "name =" if that helps to read it, then definitions of names, after commas. A product
needs no sign; σ and Φ alone are those of x. "a if condition else b" and [condition], 1 or 0, are Python's. With an index,
as fⱼ, f_y or pⱼ = …, a name has several entries; Σⱼ is the sum of the product after it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from types import CodeType
from typing import Any

RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ˣʸᶠ", "0123456789+-xyf")
LOWERED = str.maketrans("ᵢⱼₖ₁₂₃₄", "ijk0123", "_")
LETTER = r"[^\W\d_⁰¹²³⁴-⁹ˣʸᶠᵢⱼₖ₁-₄½]"
TOKEN = re.compile(rf"(\d+(?:\.\d+)?|½)|([⁰¹²³⁴-⁹⁺⁻ˣʸᶠ]+)|([ᵢⱼₖ₁-₄]|_[a-z](?![a-z_]))|({LETTER}+(?:_{LETTER}{{2,}})*['′]*)|(≤|≥|\S)")
KINDS = ("number", "raised", "index", "word", "sign")
SIGNS = {"≤": "<=", "≥": ">=", "−": "-", "·": "*", "∘": "*", "^": "**", "=": "==", "√": "_8730_", "[": "(1.0 if (", "]": ") else 0.0)"}
FUNCTIONS = {"σ": "expit", "Φ": "ndtr", "√": "sqrt"} | {
    name: name for name in ("exp", "log", "sqrt", "tanh", "sinh", "cosh", "erf", "sign", "abs", "max", "min")
}
WORDS = {"if", "else", "and", "or"}


class FormulaError(ValueError):
    """A stated formula that is not in the notation; the message names whose it is, the formula and the place."""


class Formula:
    """A formula, which may use the `names` given and `definitions`, to which it adds its own."""

    def __init__(self, text: str, names: Iterable[str], definitions: dict[str, Any], owner: str) -> None:
        self.text, self.owner, self.definitions = text, owner, definitions
        parts: list[list[tuple[str, str, int]]] = [[]]
        depth = 0
        for match in TOKEN.finditer(text):
            kind, found = KINDS[(match.lastindex or 1) - 1], match[0]
            depth += (found in "([") - (found in ")]")
            if not depth and (found in ",;" or found == "with"):
                parts.append([])
            else:
                parts[-1].append((kind, found, match.start()))
        heads = [[token[0] for token in part[:3]] + [token[1] for token in part[:3]] for part in parts]
        lengths = [2 if head[4:5] == ["="] or head[len(head) // 2 :][1:2] == ["="] else 3 * (head[-1] == "=") for head in heads]
        defined = [part[0][1].replace("′", "'") if n else "" for part, n in zip(parts, lengths, strict=True)]
        self.names = {*names, *definitions, *filter(None, defined[1:])}
        self.main = self._compiled(parts[0][lengths[0] :])
        for part, name, n in zip(parts[1:], defined[1:], lengths[1:], strict=True):
            if not n:
                raise self._error("a definition, as in t = tanh(x)", part[0][2] if part else len(text))
            definitions[name] = (part[1][1].translate(LOWERED) if n == 3 else "", self._compiled(part[n:]))

    def __call__(self, env: Mapping[str, Any]) -> Any:
        """Compute the formula from numbers; `env` has the names, "1", a number that makes others, and "C"."""
        one = env["1"]
        known = {key: _function(one, name) for key, name in FUNCTIONS.items()}
        known |= {"e": math.e, "π": math.pi, "N": one.of, "abs": lambda v: abs(one.of(v)), **env}
        known["Σ"] = lambda part: _total([part(k) for k in range(env["C"])])
        known = {_plain(key): value for key, value in known.items()}
        rest = dict(self.definitions)
        while rest:
            for name, (index, code) in list(rest.items()):
                try:
                    entries = [eval(code, known | {index or "_": k}) for k in range(env["C"] if index else 1)]
                except NameError:  # it needs one that comes later
                    continue
                known[_plain(name)] = entries if index else entries[0]
                break
            else:
                break
            del rest[name]
        return eval(self.main, known)

    def _compiled(self, tokens: list[tuple[str, str, int]]) -> CodeType:
        """Return tokens as Python code; an error of its syntax is shown at the token where it stands."""
        words, places = self._python([each for token in tokens for each in self._split(token)])
        try:
            return compile("".join(words), self.owner, "eval")
        except SyntaxError as error:
            at, length = 0, (error.offset or 1) - 1
            while at < len(words) - 1 and length >= len(words[at]):
                length, at = length - len(words[at]), at + 1
            raise self._error(f"a formula ({error.msg})", places[at] if places else len(self.text)) from None

    def _split(self, token: tuple[str, str, int]) -> list[tuple[str, str, int]]:
        """Return the known names that a word such as βx is made of, the longest first."""
        kind, found, place = token
        found, known = found.replace("′", "'"), self.names | {"e", "π", "Σ", *FUNCTIONS} | WORDS
        if kind != "word" or found in known:
            return [(kind, found, place)]
        for n in range(len(found) - 1, 0, -1):
            if found[:n] in known:
                return [(kind, found[:n], place), *self._split((kind, found[n:], place + n))]
        raise self._error(f"a number or one of {', '.join(sorted(self.names))}", place)

    def _python(self, tokens: list[tuple[str, str, int]]) -> tuple[list[str], list[int]]:
        words, places, sums, ended, bars, depth = [], [], [], False, False, 0
        for i, (kind, found, place) in enumerate(tokens):
            after = tokens[i + 1] if i + 1 < len(tokens) else ("", "", len(self.text))
            call = after[1] == "(" and (found not in "σΦ" or after[2] == place + 1)
            text = SIGNS.get(found, f"N({found.replace('½', '0.5')})" if kind == "number" else found)
            starts = kind in ("number", "word") and found not in WORDS or found in ("(", "[", "√") or (found == "|" and not bars)
            while sums and sums[-1] == depth and (found in "+−-,)]" or found in WORDS or (found == "|" and bars)):
                sums.pop()
                text = f"){text}"
            if kind == "raised":
                text = f"**({found.translate(RAISED)})"
            elif kind == "index":
                text = f"[{found.translate(LOWERED)}]" if tokens[i - 1][1] != "Σ" else f"(lambda {found.translate(LOWERED)}: "
                sums += [depth] * (tokens[i - 1][1] == "Σ")
            elif kind == "word":
                if found in FUNCTIONS and found not in "σΦ" and not call:
                    raise self._error(f"parentheses after {found}", after[2])
                text = f" {text} " if found in WORDS else _plain(found) + "(x)" * (found in "σΦ" and not call)
            elif found == "|":
                text, bars, depth = (")" if bars else "abs("), not bars, depth + (-1 if bars else 1)
            words.append("*" * (starts and ended) + text)
            places.append(place)
            depth += (found in "([") - (found in ")]")
            closed = kind in ("number", "raised") or found in ")]" or (found == "|" and not bars)
            ended = closed or (kind == "index" and tokens[i - 1][1] != "Σ")
            ended |= kind == "word" and found not in WORDS | {"Σ"} and (found not in FUNCTIONS or (found in "σΦ" and not call))
        return [*words, ")" * len(sums)], [*places, len(self.text)]

    def _error(self, expected: str, place: int) -> FormulaError:
        found = f"got {self.text[place : place + 12]!r}" if place < len(self.text) else "got its end"
        return FormulaError(f"{self.owner}: {self.text!r}, character {place + 1}: expected {expected}, {found}")


def _plain(name: str) -> str:
    """Return a name without primes, for Python, which normalizes letters besides."""
    return "".join(f"_{ord(letter)}_" if not letter.isascii() else letter for letter in name).replace("'", "_prime")


def _function(one: Any, name: str) -> Any:
    if name in ("max", "min"):
        return lambda a, b: a if (a >= b if name == "max" else a <= b) else b
    return lambda value: getattr(one.of(value), name)()


def _total(entries: list[Any]) -> Any:
    first, *rest = entries
    for each in rest:
        first = first + each
    return first
