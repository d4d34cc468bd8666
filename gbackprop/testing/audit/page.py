"""Findings as a page: one file that needs nothing else, no script and no network."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256

import gbackprop
from gbackprop.testing.audit.drawing import describe, difference_legend, drawing, heading, value_legend
from gbackprop.testing.audit.findings import Finding
from gbackprop.testing.audit.markup import Markup, join, tag
from gbackprop.testing.audit.picture import Picture
from gbackprop.testing.audit.style import CSS
from gbackprop.testing.audit.summary import Count, cells, error_of, finding_of, verdict_of
from gbackprop.testing.audit.where import Source
from gbackprop.testing.report import FAILED, OK, Row

POLICY = "default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'"
"""The security policy of the page: it may load nothing but the style sheet that is written in it."""

LONGEST = 40
"""Lines of a source that are shown."""


def page(findings: Sequence[Finding], command: str) -> str:
    """Return the whole page."""
    digest = b64encode(sha256(CSS.encode()).digest()).decode()
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY.format(digest)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", _headline(findings)),
        tag("style", Markup(CSS)),
    )
    sections = [_section(f"s{i}", finding) for i, finding in enumerate(findings)]
    body = tag("body", _header(findings, command), tag("main", _contents(findings), sections), _footer())
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _header(findings: Sequence[Finding], command: str) -> Markup:
    """Return the headline, the command, the counts of claims, and a link to each that fails."""
    count = Count.of(findings)
    counts = f"{count.claims} claims on {_several(len(findings), 'subject')}: {count}"
    failures = [
        tag("li", finding.title, ": ", tag("a", tag("code", row.method), " ", row.claim, href=f"#s{i}r{j}"))
        for i, finding in enumerate(findings)
        for j, row in enumerate(finding.report.failures)
    ]
    asked = tag("p", tag("code", command))
    failed = [tag("h2", "What fails"), tag("ul", failures, class_="failures")] if failures else None
    return tag("header", tag("h1", _headline(findings)), asked, tag("p", counts), failed)


def _headline(findings: Sequence[Finding]) -> str:
    failed = Count.of(findings).failed
    return f"Audit: {_several(failed, 'claim')} fail{'s' * (failed == 1)}" if failed else "Audit: every claim holds"


def _contents(findings: Sequence[Finding]) -> Markup | None:
    """Return a line for each subject."""
    if len(findings) == 1:
        return None
    head = tag("tr", [tag("th", name, scope="col") for name in ("subject", "claims", "error", "verdict")])
    rows = []
    for i, finding in enumerate(findings):
        report, link = finding.report, tag("a", finding.title, href=f"#s{i}")
        columns = (link, len(report.rows), error_of(report), _verdict(finding))
        rows.append(tag("tr", [tag("td", column) for column in columns]))
    note = tag("p", "error: the largest against complex steps and dense Jacobians", class_="soft")
    return tag("nav", tag("h2", "Subjects"), tag("table", head, rows), note, aria_label="Subjects")


def _verdict(finding: Finding) -> Markup:
    verdict, note = verdict_of(finding.report)
    return join(_colored(verdict), f" ({note})" if note else None)


def _colored(verdict: str) -> Markup:
    return tag("span", verdict, class_={OK: "good", FAILED: "bad"}.get(verdict, "soft"))


def _section(name: str, finding: Finding) -> Markup:
    """Return the section of the page about one subject: what fails, pictures, then what holds."""
    formulas = [(tag("dt", title), tag("dd", formula)) for title, formula in finding.formulas.items()]
    others = [_claim(row) for row in finding.report.rows if not row.failed]
    more = "" if finding.report.ok else " more"
    summary = tag("summary", f"{_several(len(others), 'claim')}{more}, each with its oracle")
    return tag(
        "section",
        tag("h2", finding.title, id=f"{name}h"),
        tag("p", finding.kind, " · ", _verdict(finding)),
        tag("p", finding.about, class_="soft") if finding.about else None,
        tag("dl", formulas) if formulas else None,
        tag("ul", list(_failures(name, finding)), class_="failures") if not finding.report.ok else None,
        _pictures(name, finding),
        tag("details", summary, tag("ul", others, class_="claims")) if others else None,
        id=name,
        aria_labelledby=f"{name}h",
    )


def _claim(row: Row) -> Markup:
    """Return a claim with its verdict, oracle and numbers."""
    method, claim, oracle, points, error, allowed, verdict = cells(row)
    numbers = f", {points} points, error {error}, allowed {allowed}" if points else ""
    small = tag("small", "against " * bool(points), oracle, numbers, class_="soft")
    return tag("li", _colored(verdict), " ", tag("code", method), " ", claim, tag("br"), small)


def _failures(name: str, finding: Finding) -> Iterator[Markup]:
    """Yield each failed claim with its error and the source lines of its method; the same lines are shown once."""
    seen: set[Source] = set()
    for j, row in enumerate(finding.report.diagnose().failures):
        look = None
        causes = [(tag("br"), tag("strong", f"Diagnosis: {each.words}"), f" ({each.evidence})") for each in row.known]
        if row.method in finding.places:
            where = finding.places[row.method]
            lines = [_source(source) for source in where.sources if source not in seen]
            seen.update(where.sources)
            look = (tag("br"), "Look at ", tag("code", where), lines)
        claim = (_colored(row.verdict), " ", tag("code", row.method), " ", row.claim)
        yield tag("li", claim, tag("br"), finding_of(row), causes, look, id=f"{name}r{j}")


def _source(source: Source) -> Markup:
    """Return source lines with their numbers."""
    lines = source.text.split("\n")
    numbered = [f"{number:4}  {line}".rstrip() for number, line in enumerate(lines[:LONGEST], source.line)]
    more = len(lines) - len(numbered)
    return tag("pre", "\n".join(numbered + ([f"      … {_several(more, 'further line')}"] if more else [])))


def _pictures(name: str, finding: Finding) -> Markup | None:
    """Return the pictures with one legend of differences, and why there are no more."""
    figures = [_figures(picture, f"{name}p{j}") for j, picture in enumerate(finding.pictures)]
    problem = f"No {'further ' * bool(figures)}picture: {finding.unpictured}" if finding.unpictured else ""
    note = tag("p", problem, class_="soft") if problem else None
    return join(tag("div", figures, class_="pictures"), difference_legend() if figures else None, note)


def _figures(picture: Picture, name: str) -> Markup:
    """Return the drawing of the difference; before it both matrices, if it is too large."""
    values = [] if picture.tight else [_figure(picture, side, name) for side in ("got", "expected")]
    axes = tag("span", f" Rows: {picture.rows}; columns: {picture.columns}.", class_="soft")
    legend = value_legend(picture.scale) if values else None
    caption = tag("figcaption", picture.method, " against ", picture.oracle, ". ", describe(picture), axes)
    return tag("div", values, _figure(picture, "difference", name, caption), legend)


def _figure(picture: Picture, side: str, name: str, caption: Markup | None = None) -> Markup:
    return tag("figure", tag("strong", heading(picture, side)), drawing(picture, side, f"{name}{side}"), caption)


def _several(count: int, thing: str) -> str:
    return f"{count} {thing}" + "s" * (count != 1)


def _footer() -> Markup:
    text = (
        f"gbackprop {gbackprop.__version__}. Errors are relative to the largest expected entry. A ring marks the worst "
        "entry. Grey cells do not differ and are not zero, empty ones are zero. What was got and expected is orange "
        "above zero and blue below; the strongest colors are for what is beyond all that is expected."
    )
    return tag("footer", tag("p", text))
