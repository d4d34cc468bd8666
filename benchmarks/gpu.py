"""Both sides on one GPU, in one run: each timed by its own framework's CUDA events, TF32 the same on both."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import cupy
import torch
from problems import Problem, make_problem
from sides import EIGHT, ours, theirs
from timing import Clock, event_clock, take_turns

import gbackprop as gb

PROBLEMS = {"3c3d": 128, "All-CNN-C": 64}
"""Network and batch size."""

WARM_UP = 3
"""Turns before those that are counted: kernels are compiled and memory pools filled in the first."""


def sections(tf32: bool) -> dict[str, Callable[[int], dict[str, Any]]]:
    """Return what there is to measure, with TF32 on or off on both sides."""

    def gpu(turns: int) -> dict[str, Any]:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        torch.backends.cudnn.allow_tf32 = tf32
        with gb.tf32() if tf32 else nullcontext():
            return table(turns)

    return {"gpu": gpu}


def table(turns: int) -> dict[str, Any]:
    """The gradient, each quantity, the eight in one call."""
    rows = {}
    for name, samples in PROBLEMS.items():
        problem = make_problem(name, samples, device="cuda")
        asked = {"gradient": [], **{each: [each] for each in EIGHT}, "these eight in one call": EIGHT}
        for label, names in asked.items():
            rows[f"{name}, N = {samples}: {label}"] = pair(problem, names, turns)
    return rows


def pair(problem: Problem, names: list[str], turns: int) -> dict[str, Any]:
    """Both sides; one that runs out of memory is left out."""
    calls = {"ours": ours(problem, names), "theirs": theirs(problem, names)}
    return take_turns(fitting(calls, release), turns, clocks(), WARM_UP)


def clocks() -> Mapping[str, Clock]:
    """Both frameworks work on the same, default stream."""
    mine = event_clock(cupy.cuda.Event, cupy.cuda.Device().synchronize, cupy.cuda.get_elapsed_time)
    torchs = event_clock(
        lambda: torch.cuda.Event(enable_timing=True),
        torch.cuda.synchronize,
        lambda start, stop: start.elapsed_time(stop),
    )
    return {"ours": mine, "theirs": torchs}


def fitting(calls: Mapping[str, Callable[[], Any]], release: Callable[[], Any]) -> dict[str, Callable[[], Any]]:
    """The calls that do not run out of memory."""
    found = {}
    for side, call in calls.items():
        try:
            call()
        except (MemoryError, RuntimeError) as error:  # torch's is a RuntimeError
            if "out of memory" not in str(error).lower():
                raise
            print(f"{side}: out of memory", file=sys.stderr, flush=True)
        else:
            found[side] = call
        release()
    return found


def release() -> None:
    """Give both frameworks' pools back: neither shall lack what the other keeps."""
    torch.cuda.empty_cache()
    cupy.get_default_memory_pool().free_all_blocks()


def machine(tf32: bool) -> dict[str, str]:
    """The GPU, and what stands between it and the code."""
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    runtime = cupy.cuda.runtime
    return {
        "device": properties["name"].decode(),
        "memory": f"{properties['totalGlobalMem'] / 2**30:.0f} GiB",
        "driver": str(runtime.driverGetVersion()),
        "CUDA (CuPy)": str(runtime.runtimeGetVersion()),
        "CUDA (torch)": str(torch.version.cuda),
        "cuDNN": str(torch.backends.cudnn.version()),
        "cupy": cupy.__version__,
        "TF32": "on" if tf32 else "off",
    }
