"""The audit's page: it loads nothing, escapes what users wrote, marks the worst entry, and renders in a browser."""

import inspect
import json
import re
import shutil
import struct
import subprocess
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest

import gbackprop as gb
from gbackprop import layers, losses
from gbackprop.layers import Elementwise, Layer, Linear
from gbackprop.testing.audit.drawing import LEVELS, STRENGTHS
from gbackprop.testing.audit.findings import Auditor, Finding
from gbackprop.testing.audit.page import LONGEST, _source, page
from gbackprop.testing.audit.style import COLORED
from gbackprop.testing.audit.where import Source
from gbackprop.testing.report import Report, Row

NASTY = "</style><script>alert('\"')</script><img src=https://evil.example/x onerror=alert(1)>&amp;"
VOID = ("br", "meta")
VALUES = [f"{sign}{k}" for sign in "np" for k in range(1, STRENGTHS + 1)]


class Nasty(Elementwise):
    __doc__ = NASTY
    formulas = {"forward": NASTY, NASTY: "y"}

    def value(self, x):
        return x * x

    def first(self, x, y):
        return 2 * x

    def second(self, x, y):
        return np.ones_like(x)

    def describe(self):
        return NASTY


class Transposed(Linear):
    def mjp(self, saved, mat):
        return super().jmp(saved, mat)


class Blind(Layer):
    def forward(self, x):
        raise RuntimeError(NASTY)


class Page(HTMLParser):
    """The parts of a page; an error if its elements do not nest."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.text = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, name, attributes):
        self.tags.append(name)
        self.attributes += [(name, key, value) for key, value in attributes]
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        self.text.append(data)

    def values(self, key):
        return [value for _, found, value in self.attributes if found == key]


@pytest.fixture(scope="module")
def findings():
    auditor = Auditor(pictures=True)
    x = np.random.default_rng(0).standard_normal((3, 4))
    found = [auditor.layer(layer, x) for layer in (Nasty(), Transposed(4, 4), layers.Tanh(), Blind())]
    net = gb.Sequential(Linear(4, 3), layers.Sigmoid(), rng=0)
    found += auditor.network(net, losses.CrossEntropyLoss(), x, np.array([0, 2, 1]))
    return [*found, auditor.loss(losses.MSELoss(), x, x[::-1].copy())]


@pytest.fixture(scope="module")
def text(findings):
    return page(findings, f"python -m gbackprop audit {NASTY}")


@pytest.fixture(scope="module")
def parsed(text):
    return Page(text)


# --- the page -------------------------------------------------------------------------------------


def test_nothing_is_loaded_from_anywhere(text, parsed):
    assert set(parsed.tags).isdisjoint({"script", "link", "img", "image", "iframe", "object", "embed", "use", "base"})
    assert parsed.values("src") == []
    assert all(target.startswith("#") for target in parsed.values("href"))
    assert not any(key.startswith("on") or key == "style" for _, key, _ in parsed.attributes)
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
    for word in ("@import", "url(", "http:", "https:", "//"):
        assert word not in style
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert ("meta", "http-equiv", "Content-Security-Policy") in parsed.attributes
    assert policy in parsed.values("content")


def test_what_a_user_wrote_is_text(text, parsed):
    assert "<script" not in text
    assert "<img" not in text
    for where in (f"Nasty({NASTY})", NASTY, f"python -m gbackprop audit {NASTY}"):
        assert where in parsed.text
    assert any(f"RuntimeError: {NASTY}" in part for part in parsed.text)


def test_every_color_is_in_the_style_sheet(text):
    assert set(re.findall(r'<(?:path|i)[^>]* class="(\w+)">', text)) <= set(COLORED)
    assert len(COLORED) == LEVELS + 2 * STRENGTHS + 2


def test_the_lines_of_a_failing_method_are_shown_once(text):
    assert text.count("return super().jmp(saved, mat)") == 1


def test_the_lines_of_a_method_that_fails_once_are_shown(findings):
    finding = next(each for each in findings if each.title.startswith("Transposed"))
    row = next(row for row in finding.report.failures if row.method == "mjp")
    assert "return super().jmp(saved, mat)" in page([replace(finding, report=Report("T", [row]))], "command")


def test_links_lead_somewhere_and_failures_are_linked(findings, parsed):
    ids = parsed.values("id")
    assert len(ids) == len(set(ids))
    assert {target[1:] for target in parsed.values("href")} <= set(ids)
    named = {name for value in parsed.values("aria-labelledby") for name in value.split()}
    assert named <= set(ids)
    for i, finding in enumerate(findings):
        failed = {f"s{i}r{j}" for j in range(len(finding.report.failures))}
        assert {name for name in ids if name.startswith(f"s{i}r")} == failed
        assert failed <= {target[1:] for target in parsed.values("href")}


def test_it_says_what_it_comes_to(findings, parsed):
    rows = [row for finding in findings for row in finding.report.rows]
    failed = sum(row.failed for row in rows)
    assert f"Audit: {failed} claims fail" in parsed.text
    held = sum(row.verdict == "ok" for row in rows)
    assert f"{len(rows)} claims on {len(findings)} subjects: {held} hold, {failed} fail" in " ".join(parsed.text)
    assert failed >= 3
    sound = Page(page([findings[2]], "audit"))
    assert "Audit: every claim holds" in sound.text
    assert f"{len(findings[2].report.rows)} claims, each with its oracle" in sound.text


def test_each_row_with_its_oracle(findings, parsed):
    shown = "".join(parsed.text)
    for row in findings[0].report.rows:
        assert f"{row.verdict} {row.method} {row.claim}" in shown
        numbers = f"against {row.oracle}, {row.points} points, error {row.error:.1e}"
        assert numbers in shown or row.failed or not row.points


def test_what_holds_is_counted_beside_what_fails(findings, text):
    for finding in findings:
        held = sum(not row.failed for row in finding.report.rows)
        more = "" if finding.report.ok else " more"
        assert f"{held} claim{'s' * (held != 1)}{more}, each with its oracle" in text


def test_formulas_are_shown(parsed):
    assert {"y = tanh(x)", "(1 − y²) g", "−2y (1 − y²) g", "y = W x + b"} <= set(parsed.text)


def test_light_and_dark(text):
    light, dark = text.split("@media (prefers-color-scheme: dark)")
    for name in ("page", "ink", "bad", "halo", *COLORED):
        assert f"--{name}:" in light
        assert f"--{name}:" in dark.split("* {")[0]
    assert 'name="color-scheme" content="light dark"' in text


def luminance(color):
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def test_colors_go_one_way_and_text_is_legible(text):
    for part, sign in zip(text.split("@media (prefers-color-scheme: dark)"), (-1, 1), strict=True):
        colors = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", part.split("* {")[0]))
        levels_ = [luminance(colors[f"e{k}"]) for k in range(LEVELS)]
        assert all(sign * (b - a) > 0 for a, b in pairwise(levels_))
        for side in (VALUES[:STRENGTHS], VALUES[STRENGTHS:]):
            assert all(sign * (b - a) > 0 for a, b in pairwise(luminance(colors[name]) for name in side))
        pairs = [("ink", "card"), ("soft", "card"), ("soft", "page"), ("link", "card"), ("link", "bad-back")]
        pairs += [("link", "page"), ("bad", "bad-back"), ("ink", "bad-back"), ("good", "card"), ("bad", "card")]
        for one, other in pairs:
            low, high = sorted((luminance(colors[one]), luminance(colors[other])))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (one, other)


# --- pictures -------------------------------------------------------------------------------------


def test_pictures_are_of_the_jacobians(findings):
    titles = [[p.title for p in finding.pictures] for finding in findings]
    residual = "Σⱼ (∇² yⱼ) gⱼ"
    assert titles[:4] == [["∂y/∂x", residual], ["∂y/∂x", "∂y/∂weight", "∂y/∂bias"], ["∂y/∂x", residual], []]
    assert [[p.tight for p in finding.pictures] for finding in findings[:3]] == [[True, False], [False, True, True],
                                                                                 [True, True]]
    assert findings[3].unpictured == f"RuntimeError: {NASTY}"
    assert titles[-1] == ["∇ℓ, a row for each sample", "∇²ℓ"]


def test_a_picture_shows_what_its_row_found(findings):
    for finding, method in ((findings[1], "mjp"), (findings[2], "mjp")):
        row = next(row for row in finding.report.rows if row.method == method and row.oracle == "complex step")
        shown = next(p for p in finding.pictures if p.method == method)
        assert shown.error.max() == pytest.approx(row.error, rel=1e-6)
        if row.failed:
            assert (shown.got[shown.worst], shown.want[shown.worst]) == pytest.approx((row.got, row.want))


def test_claims_that_were_not_judged_are_counted_if_there_are_any(text):
    assert re.search(r"\d+ hold, \d+ fail, [1-9]\d* not judged or not given</p>", text)
    judged = Finding("layer", Report("all", [Row(verdict, "f", verdict=verdict) for verdict in ("ok", "FAILED")]))
    assert "2 claims on 1 subject: 1 hold, 1 fail</p>" in page([judged], "command")


def test_what_was_got_and_expected_is_drawn_where_it_differs(findings, parsed):
    wrong = [picture.title for finding in findings for picture in finding.pictures if not picture.tight]
    assert len(wrong) >= 2
    for side in (", got", ", expected"):
        headings = [text.removesuffix(side) for text in parsed.text if text.endswith(side)]
        assert sorted(headings) == sorted(2 * wrong)  # above each drawing, and as its title
    assert parsed.text.count("NaN") == len(wrong)  # the colors of values are explained beside these alone
    assert parsed.text.count("≥ 1e-16") == sum(bool(each.pictures) for each in findings)  # those of differences once


def test_the_lines_that_are_named_are_shown_with_their_numbers(parsed):
    first = inspect.getsourcelines(Transposed.mjp)[1]
    shown = [text for text in parsed.text if text.startswith(f"{first:4}  def mjp(self, saved, mat):")]
    assert shown == [f"{first:4}  def mjp(self, saved, mat):\n{first + 1:4}      return super().jmp(saved, mat)"]


def test_a_long_source_is_cut():
    text = "\n".join(f"line{i}" for i in range(LONGEST + 3))
    cut = _source(Source("file.py", "f", 7, text))
    assert cut.startswith("<pre>   7  line0\n   8  line1\n")
    assert cut.endswith(f"line{LONGEST - 1}\n      … 3 further lines</pre>")


# --- a browser ------------------------------------------------------------------------------------

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
    *("--host-resolver-rules=MAP * ~NOTFOUND", "--hide-scrollbars"),
)


def browse(folder, url, *options):
    """Output of a browser without network, and the addresses that pages asked it for."""
    log = folder / "net.json"
    command = [BROWSER, *QUIET, f"--user-data-dir={folder / 'profile'}", f"--log-net-log={log}", *options, url]
    ran = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120, check=True)
    return ran.stdout, requests(json.loads(log.read_text(encoding="utf-8")))


def requests(log):
    """Addresses that a page asked for: what the browser asks for itself has no initiator."""
    begun = [event["params"] for event in log["events"] if "url" in event.get("params", {})]
    return [p["url"] for p in begun if p.get("initiator", "not an origin") != "not an origin"]


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")
class TestInABrowser:
    def test_it_renders_with_no_request(self, text, findings, tmp_path):
        file = tmp_path / "page.html"
        file.write_text(text, encoding="utf-8")
        dom, asked = browse(tmp_path, file.as_uri(), "--dump-dom")
        assert asked == []
        found = Page(dom)
        assert found.tags.count("section") == len(findings)
        pictures = [picture for finding in findings for picture in finding.pictures]
        assert found.tags.count("svg") == sum(1 if picture.tight else 3 for picture in pictures)
        assert "script" not in found.tags

    def test_a_page_that_asks_is_caught(self, tmp_path):
        file = tmp_path / "page.html"
        file.write_text("<!doctype html><img src='http://evil.example/x.png'>", encoding="utf-8")
        _, asked = browse(tmp_path, file.as_uri(), "--dump-dom")
        assert "http://evil.example/x.png" in asked

    @pytest.mark.parametrize("size", [(1100, 900), (390, 840)])
    def test_it_can_be_looked_at(self, text, tmp_path, size):
        file, shot = tmp_path / "page.html", tmp_path / "shot.png"
        file.write_text(text, encoding="utf-8")
        browse(tmp_path, file.as_uri(), f"--window-size={size[0]},{size[1]}", f"--screenshot={shot}")
        image = shot.read_bytes()
        assert struct.unpack(">II", image[16:24]) == size
        assert len(image) > 20_000  # a blank page takes 5 kB
