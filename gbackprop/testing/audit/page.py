"""Findings as a page: one file that needs nothing else, no script and no network."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256

import gbackprop
from gbackprop.testing.audit.drawing import describe, svg, values_svg
from gbackprop.testing.audit.findings import Finding
from gbackprop.testing.audit.markup import Markup, join, tag
from gbackprop.testing.audit.picture import Picture
from gbackprop.testing.audit.style import CSS
from gbackprop.testing.audit.summary import COLUMNS, Count, cells, error_of, finding_of, verdict_of
from gbackprop.testing.audit.where import Place, Source
from gbackprop.testing.report import FAILED, OK, Report, Row

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
    main = tag("main", _contents(findings), [_section(i, finding) for i, finding in enumerate(findings)])
    body = tag("body", _header(findings, command), main, _footer())
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _header(findings: Sequence[Finding], command: str) -> Markup:
    count = Count.of(findings)
    chips = [
        tag("li", f"{count.claims} claims on {_several(len(findings), 'subject')}"),
        tag("li", f"{count.ok} hold", class_="good"),
        tag("li", f"{count.failed} fail", class_="bad" if count.failed else None),
    ]
    chips += [tag("li", f"{count.rest} not judged or not given")] if count.rest else []
    failures = [
        tag("li", tag("a", finding.title, href=f"#s{i}"), ": ", tag("a", _claim(row), href=f"#s{i}r{j}"))
        for i, finding in enumerate(findings)
        for j, row in enumerate(finding.report.rows)
        if row.failed
    ]
    failed = [tag("h2", "What fails"), tag("ul", failures, class_="failures")] if failures else None
    asked = tag("p", tag("code", command))
    return tag("header", tag("h1", _headline(findings)), asked, tag("ul", chips, class_="chips"), failed)


def _headline(findings: Sequence[Finding]) -> str:
    failed = Count.of(findings).failed
    return f"Audit: {_several(failed, 'claim')} fail{'s' * (failed == 1)}" if failed else "Audit: every claim holds"


def _claim(row: Row) -> Markup:
    return join(tag("code", row.method), " ", row.claim)


def _contents(findings: Sequence[Finding]) -> Markup | None:
    """Return a line for each subject."""
    if len(findings) == 1:
        return None
    head, rows = _head(("subject", "claims", "error", "verdict")), []
    for i, finding in enumerate(findings):
        error = error_of(finding.report)
        cells = (
            _cell(tag("a", finding.title, href=f"#s{i}"), "first"),
            _cell(len(finding.report.rows), "number", "claims"),
            _cell(error, "number", "error" if error else None),
            _cell(_verdict(finding.report), "verdict"),
        )
        rows.append(tag("tr", cells, role="row"))
    note = tag("p", "error: the largest against complex steps and dense Jacobians", class_="soft")
    return tag("nav", tag("h2", "Subjects"), _table(head, rows), note, aria_label="Subjects")


def _verdict(report: Report) -> Markup:
    verdict, note = verdict_of(report)
    state = {OK: "good", FAILED: "bad"}.get(verdict, "soft")
    return join(tag("span", verdict, class_=state), f" ({note})" if note else "")


# ------------------------------------------------------------------------------------------------------------ subjects


def _section(i: int, finding: Finding) -> Markup:
    """Return the section of the page about one subject."""
    report = finding.report
    head = (tag("h2", finding.title, id=f"h{i}"), tag("span", finding.kind, " · ", _verdict(report)))
    return tag(
        "section",
        tag("div", head, class_="head"),
        tag("p", finding.about, class_="soft") if finding.about else None,
        _formulas(finding),
        list(_failures(i, finding)),
        _pictures(i, finding),
        _rows(i, finding),
        id=f"s{i}",
        class_=None if report.ok else "failed",
        aria_labelledby=f"h{i}",
    )


def _formulas(finding: Finding) -> Markup | None:
    """Return the list of the formulas that the subject states."""
    lines = [(tag("dt", name), tag("dd", formula, class_="math")) for name, formula in finding.formulas.items()]
    return tag("dl", lines) if lines else None


def _failures(i: int, finding: Finding) -> Iterator[Markup]:
    """Yield each failed claim with its error and the source lines of its method; the same lines are shown once."""
    items: list[Markup] = []
    seen: set[Source] = set()
    for j, row in enumerate(finding.report.rows):
        if row.failed:
            where = finding.places.get(row.method, Place())
            lines = [_source(source) for source in where.sources if source not in seen]
            seen.update(where.sources)
            look = (tag("br"), "Look at ", tag("code", where), lines) if where.sources else None
            items.append(tag("li", tag("a", _claim(row), href=f"#s{i}r{j}"), ": ", finding_of(row), look))
    if items:
        yield tag("ul", items, class_="failures")


def _source(source: Source) -> Markup:
    """Return source lines with their numbers."""
    lines = source.text.split("\n")
    numbered = [f"{number:4}  {line}".rstrip() for number, line in enumerate(lines[:LONGEST], source.line)]
    more = len(lines) - len(numbered)
    return tag("pre", "\n".join(numbered + ([f"      … {_several(more, 'further line')}"] if more else [])))


def _pictures(i: int, finding: Finding) -> Markup | None:
    figures = [_figure(picture, f"s{i}p{j}") for j, picture in enumerate(finding.pictures)]
    if finding.unpictured:
        figures.append(tag("p", f"No {'further ' * bool(figures)}picture: {finding.unpictured}", class_="soft"))
    return tag("div", figures, class_="pictures") if figures else None


def _figure(picture: Picture, name: str) -> Markup:
    title = (tag("strong", f"|difference| of {picture.title}"), f", {picture.method} against {picture.oracle}")
    values = None if picture.tight else [_values(picture, side, f"{name}{side}") for side in ("got", "expected")]
    pattern = (" ", tag("strong", picture.pattern)) if picture.pattern else None
    axes = tag("span", f"Rows: {picture.rows}; columns: {picture.columns}.", class_="soft")
    caption = tag("figcaption", describe(picture), pattern, " ", axes)
    return join(values, tag("figure", title, svg(picture, name), caption))


def _values(picture: Picture, side: str, name: str) -> Markup:
    """Return one of the two matrices whose difference is too large."""
    return tag("figure", tag("strong", f"{picture.title}, {side}"), values_svg(picture, side, name))


# ---------------------------------------------------------------------------------------------------------------- rows


def _rows(i: int, finding: Finding) -> Markup:
    """Return all claims; open where one fails."""
    head = _head(COLUMNS)
    rows = [_row(row, f"s{i}r{j}") for j, row in enumerate(finding.report.rows)]
    summary = tag("summary", f"{_several(len(rows), 'claim')}, each with its oracle")
    return tag("details", summary, _table(head, rows), open=not finding.report.ok)


def _row(row: Row, name: str) -> Markup:
    method, claim, oracle, *numbers, verdict = cells(row)
    state = {OK: "good", FAILED: "bad"}.get(row.verdict, "soft")
    labels = [label if number else None for label, number in zip(COLUMNS[3:6], numbers, strict=True)]
    shown = (
        _cell(method, "method first"),
        _cell(join(claim, tag("br"), finding_of(row)) if row.failed else claim, "wide"),
        _cell(oracle, "wide", "against" if row.oracle else None),
        [_cell(number, "number", label) for number, label in zip(numbers, labels, strict=True)],
        _cell(tag("span", verdict, class_=state), "verdict"),
    )
    return tag("tr", shown, id=name if row.failed else None, role="row", class_="failed" if row.failed else None)


def _head(names: Sequence[str]) -> Markup:
    numbers = ("claims", "points", "error", "allowed")
    kinds = ["number" if name in numbers else None for name in names]
    cells = [tag("th", n, scope="col", role="columnheader", class_=k) for n, k in zip(names, kinds, strict=True)]
    return tag("tr", cells, role="row")


def _cell(content: object, kind: str, label: str | None = None) -> Markup:
    return tag("td", content, class_=kind, role="cell", data_label=label)


def _table(head: Markup, rows: list[Markup]) -> Markup:
    # Roles, because a style that stacks rows on a phone makes browsers forget that it is a table.
    body = tag("tbody", rows, role="rowgroup")
    return tag("table", tag("thead", head, role="rowgroup"), body, role="table")


def _several(count: int, thing: str) -> str:
    return f"{count} {thing}" + "s" * (count != 1)


def _footer() -> Markup:
    text = (
        f"gbackprop {gbackprop.__version__}. Errors are relative to the largest expected entry. The colors of "
        "differences go up a hundredfold from one to the next; grey cells do not differ and are not zero, empty ones "
        "are zero. What was got and expected is orange above zero and blue below; the strongest colors are for what is "
        "beyond all that is expected."
    )
    return tag("footer", tag("p", text))
