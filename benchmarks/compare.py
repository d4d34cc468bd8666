"""gbackprop against BackPACK on torch, on this machine: ``python benchmarks/compare.py [SECTION ...]``.

Sections: table (the ratios that the README quotes), individual (for-loop against vectorized), overhead (over batch
sizes), classes (100 classes), hessian (one sigmoid), breadth (other layers, and networks that are no chains), small
(small calls, against JAX and curvlinops too), operators (products and factors, against curvlinops), memory (peaks of
our calls). With ``--device cuda`` there is one, gpu: both sides on one GPU. Each writes ``results/SECTION.json``; all
write ``results/README.md`` and the plots.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from report import write_report

from gbackprop.array import check_device

RESULTS = Path(__file__).parent / "results"
HOST = ("table", "individual", "overhead", "classes", "hessian", "breadth", "small", "operators", "memory")
GPU = ("gpu",)


def machine() -> dict[str, str]:
    """Return what the figures depend on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":")[1].strip() for line in lines if "model name" in line), "unknown")
    found = {"processor": cpu, "threads": str(threads()), "python": platform.python_version()}
    return found | versions(
        "numpy", "scipy", "numba", "torch", "backpack-for-pytorch", "jax", "curvlinops-for-pytorch"
    )


def versions(*packages: str) -> dict[str, str]:
    """Those of the packages that are installed."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def threads() -> int:
    """Processors that both sides use."""
    return len(os.sched_getaffinity(0))


def arguments() -> argparse.Namespace:
    """The command line, checked: where there is no GPU, ``--device cuda`` ends here."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", help=f"some of {', '.join(HOST)}; with --device cuda, {GPU[0]}")
    parser.add_argument("--turns", type=int, default=7, help="counted repetitions (default: %(default)s)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--tf32", action="store_true", help="on a GPU, TF32 on both sides; off on both by default")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder to write to (default: %(default)s)")
    options = parser.parse_args()
    known = GPU if options.device == "cuda" else HOST
    unknown = [name for name in options.sections if name not in known]
    if unknown:
        parser.error(f"sections with --device {options.device} are {', '.join(known)}, not {', '.join(unknown)}")
    if options.tf32 and options.device == "cpu":
        parser.error("--tf32 needs --device cuda")
    try:
        check_device(options.device)
    except RuntimeError as error:
        parser.error(str(error))
    options.sections = options.sections or known
    return options


def main() -> None:
    """Measure, and write JSON, Markdown and plots."""
    options = arguments()
    import torch  # not before the arguments are known to be good

    warnings.filterwarnings("ignore", module="backpack")
    torch.set_num_threads(threads())
    if options.device == "cuda":
        import gpu

        measured, on = gpu.sections(options.tf32), machine() | gpu.machine(options.tf32)
    else:
        import sections

        measured, on = sections.SECTIONS, machine()
    options.results.mkdir(exist_ok=True, parents=True)
    for section in options.sections:
        found = {"machine": on, "turns": options.turns, "rows": measured[section](options.turns)}
        (options.results / f"{section}.json").write_text(json.dumps(found, indent=1) + "\n")
        print(f"{section}: {len(found['rows'])} rows", flush=True)
    write_report(options.results)


if __name__ == "__main__":
    main()
