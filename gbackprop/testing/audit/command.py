"""``python -m gbackprop audit``: what to audit, and what to make of it."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gbackprop.array import check_device
from gbackprop.base.files import OutputError, check_output, written
from gbackprop.calculus.layer import Layer, Shape
from gbackprop.losses.base import Loss
from gbackprop.testing import certify
from gbackprop.testing.audit.findings import Auditor, Finding
from gbackprop.testing.audit.page import page
from gbackprop.testing.audit.table import Terminal
from gbackprop.testing.audit.target import TargetError, importable, resolve
from gbackprop.testing.audit.users import audited
from gbackprop.testing.cases import ALL_LAYERS, LOSSES, NETWORKS
from gbackprop.testing.certificate.certify import is_elementwise

BATCH = 3
"""Samples of an audit if the command does not say how many."""


def run(options: argparse.Namespace) -> int:
    """Audit what the options name, show what was found, and write the page."""
    _check_options(options)
    auditor = Auditor(options.seed, pictures=options.html is not None)
    with importable(Path.cwd()):
        if options.certificate:
            findings = _certified(options.target, auditor)
        elif options.target is None:
            findings = _shown(shipped(auditor), options.rows)
        else:
            subject = resolve(options.target)
            if options.loss and not isinstance(subject, Layer):
                raise TargetError(f"--loss goes with a network or a layer, which {options.target} is not")
            if (options.input or options.batch != BATCH) and not isinstance(subject, Layer | Loss):
                raise TargetError(f"--input and --batch go with a layer or a loss, which {options.target} is not")
            found, detailed = audited(options, subject, auditor)
            findings = _shown(found, detailed or options.rows)
    if options.html is not None:
        _write(findings, options)
        print(f"page: {options.html}", file=sys.stderr)
    return 0 if all(finding.report.ok for finding in findings) else 1


def shipped(auditor: Auditor) -> Iterator[Finding]:
    """Audit each layer in several configurations, each loss with both reductions, and all quantities on networks."""
    for i, row in enumerate(ALL_LAYERS):
        layer, x = row.layer(auditor.rng(0, i)), row.x(rng=auditor.rng(1, i))
        yield auditor.layer(layer, x, row.reference(layer), f"{layer!r} of {_size(row.shape)}")
    for each in LOSSES:
        output, target = each.batch(auditor.seed)
        for loss in (each.loss("mean"), each.loss("sum")):
            title = f"{loss!r} of {_size(output.shape[1:])}"
            yield auditor.loss(loss, output, target, each.definition(loss), title)
    for network in NETWORKS:
        yield auditor.whole(network.network(auditor.rng(3)), network.loss, *network.batch(auditor.seed))


def _certified(target: str | None, auditor: Auditor) -> list[Finding]:
    """Certify what a target names, or all that ships, and show derivations and proofs."""
    findings = []
    for subject in shipped_functions(auditor) if target is None else [resolve(target)]:
        try:
            certificate = certify(subject)  # type: ignore[arg-type]  # which it checks
        except (TypeError, ValueError) as error:
            raise TargetError(f"{target or subject}: {error}") from error
        print(certificate, end="\n\n")
        findings.append(auditor.certificate(subject, certificate))
    print(f"{sum(finding.report.ok for finding in findings)} of {len(findings)} certified")
    return findings


def shipped_functions(auditor: Auditor) -> Iterator[Layer | Loss]:
    """Yield the elementwise layers that ship, and the losses, one of each kind and of each set of formulas."""
    subjects: list[Any] = [row.layer(auditor.rng(0)) for row in ALL_LAYERS]
    subjects += [row.loss("mean") for row in LOSSES]
    known: list[tuple[type, object]] = []
    for subject in subjects:
        form = (type(subject), subject.formulas)
        own = isinstance(subject, Loss) or (subject.formulas is not Layer.formulas and is_elementwise(subject))
        if form in known or not own:
            continue
        known.append(form)
        yield subject


def _size(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _check_options(options: argparse.Namespace) -> None:
    """Refuse what cannot end well before anything is computed."""
    posed = options.input or options.loss or options.batch != BATCH
    if options.certificate and (posed or options.rows or options.symmetries):
        others = "--input, --loss, --batch, --rows and --symmetries"
        raise TargetError(f"--certificate goes without {others}: it takes one number at a time")
    if options.target is None and (posed or options.symmetries):
        given = "--symmetries goes" if options.symmetries else "--input, --loss and --batch go"
        raise TargetError(f"{given} with a target, as in: audit my_layers:Swish --input 4")
    if options.device != "cpu" and not options.symmetries:
        raise TargetError(f"--device goes with --symmetries, got --device {options.device}")
    try:
        check_device(options.device)
    except (RuntimeError, ValueError) as error:
        raise TargetError(str(error)) from error
    if options.html is not None:
        try:
            check_output(options.html)
        except OutputError as error:
            raise TargetError(f"--html: {error}") from error


def _shown(found: Iterable[Finding], detailed: bool) -> list[Finding]:
    """Show findings as they come: all rows of each, or a line."""
    terminal, findings = Terminal(sys.stdout), []
    if not detailed:
        terminal.head()
    for finding in found:
        findings.append(finding)
        terminal.rows(finding) if detailed else terminal.line(finding)
    terminal.total(findings)
    return findings


def _write(findings: list[Finding], options: argparse.Namespace) -> None:
    """Write the page; its command leaves out options that have their defaults."""
    words = ["python", "-m", "gbackprop", "audit"] + ([options.target] if options.target else [])
    words += ["--symmetries"] * options.symmetries + ["--certificate"] * options.certificate
    for name, default in (("input", None), ("loss", None), ("batch", BATCH), ("seed", 0), ("device", "cpu")):
        value = getattr(options, name)
        words += [] if value == default else [f"--{name}", str(value)]
    try:
        with written(options.html) as part:
            part.write_text(page(findings, shlex.join(words)), encoding="utf-8")
    except OutputError as error:
        raise TargetError(f"--html: {error}") from error
