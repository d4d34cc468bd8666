"""The benchmarks' own machinery, without torch and without a GPU: clocks, command line, report."""

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
from device_cupy import installed

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))


class Gpu:
    """A GPU that works off what it is asked, in order, when somebody waits for it."""

    def __init__(self):
        self.now, self.queue = 0.0, []

    def ask(self, milliseconds, then=lambda: None):
        self.queue.append((milliseconds, then))

    def wait(self):
        for milliseconds, then in self.queue:
            self.now += milliseconds
            then()
        self.queue.clear()

    def event(self):
        event = types.SimpleNamespace(time=None, synchronize=self.wait)
        event.record = lambda: self.ask(0, lambda: setattr(event, "time", self.now))
        return event


def test_events_count_what_a_call_asks_of_the_gpu_and_nothing_before():
    import timing

    gpu = Gpu()
    clock = timing.event_clock(gpu.event, gpu.wait, lambda start, stop: stop.time - start.time)
    gpu.ask(100.0)  # left over from somebody else
    assert clock(lambda: [gpu.ask(3.0), gpu.ask(4.0)]) == 7.0
    assert gpu.now == 107.0
    assert gpu.queue == []


def test_turns_alternate_and_the_first_do_not_count(monkeypatch):
    import timing

    monkeypatch.setattr(timing.gc, "collect", lambda: None)  # seconds, after many tests
    asked, times = [], {"a": iter([50.0, 40.0, 1.0, 2.0, 3.0]), "b": iter([70.0, 60.0, 5.0, 5.0, 5.0])}

    def clock(name):
        def measure(call):
            call()
            return next(times[name])

        return measure

    calls = {name: lambda name=name: asked.append(name) for name in "ab"}
    found = timing.take_turns(calls, 3, {name: clock(name) for name in "ab"}, warm_up=2)
    assert asked == list("ababababab")
    assert found == {
        "a": {"median": 2.0, "lower": 1.5, "upper": 2.5},
        "b": {"median": 5.0, "lower": 5.0, "upper": 5.0},
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--device", "cuda", "table"], ["--device cuda", "gpu", "table"]),
        (["gpu"], ["--device cpu", "table", "gpu"]),
        (["--tf32"], ["--tf32 needs --device cuda"]),
        (["--device", "cuda"], ["\ncompare.py: error: device 'cuda'"]),
    ],
)
def test_what_cannot_be_compared_is_one_message(options, words, request):
    if options == ["--device", "cuda"] and request.config.getoption("--device") == "cuda":
        pytest.skip("there is a GPU here")
    environment = os.environ | {"PYTHONPATH": str(FOLDER.parent)}
    command = [sys.executable, str(FOLDER / "compare.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 2
    assert all(word in done.stderr for word in words), done.stderr
    assert "Traceback" not in done.stderr


def test_the_report_of_a_gpu_has_bars_and_bears_a_side_that_did_not_fit(tmp_path):
    import report

    side = {"median": 2.0, "lower": 1.0, "upper": 3.0}
    rows = {
        "3c3d, N = 128: gradient": {"ours": side, "theirs": {**side, "median": 4.0, "upper": 5.0}},
        "3c3d, N = 128: KFLR": {"ours": side},
        "3c3d, N = 128: these eight in one call": {"ours": side, "theirs": side},
    }
    found = {"machine": {"device": "Some GPU"}, "turns": 7, "rows": rows}
    (tmp_path / "gpu.json").write_text(json.dumps(found))
    report.write_report(tmp_path)
    lines = (tmp_path / "README.md").read_text().splitlines()
    assert "device Some GPU" in lines
    assert "| 3c3d, N = 128: gradient | 2 [1, 3] | 4 [1, 5] | 0.50 | ≤ 1.2 |" in lines
    assert "| 3c3d, N = 128: KFLR | 2 [1, 3] |  |  | ≤ 1 |" in lines
    assert "| 3c3d, N = 128: these eight in one call | 2 [1, 3] | 2 [1, 3] | 1.00 | ≤ 0.35 |" in lines


@pytest.mark.long
def test_the_committed_report_is_that_of_the_committed_figures(tmp_path):
    pytest.importorskip("matplotlib")
    import report

    for path in (FOLDER / "results").glob("*.json"):
        (tmp_path / path.name).write_text(path.read_text())
    report.write_report(tmp_path)
    assert (tmp_path / "README.md").read_text() == (FOLDER / "results" / "README.md").read_text()


@pytest.mark.long
def test_the_table_of_a_gpu(monkeypatch):
    """With stand-ins for what needs a GPU: every row is asked for, TF32 is the same on both sides, no side is lost."""
    asked, settings = [], []
    switch = types.SimpleNamespace(allow_tf32=None)
    cudnn = types.SimpleNamespace(allow_tf32=None)
    torch = types.ModuleType("torch")
    torch.backends = types.SimpleNamespace(cuda=types.SimpleNamespace(matmul=switch), cudnn=cudnn)
    torch.cuda = types.SimpleNamespace(empty_cache=lambda: None)
    problems, sides = types.ModuleType("problems"), types.ModuleType("sides")
    problems.Problem = object
    problems.make_problem = lambda name, samples, device: (name, samples, device)

    def side(problem, names):
        def call():
            asked.append((problem, tuple(names)))
            settings.append((switch.allow_tf32, cudnn.allow_tf32, core.get_compute_type("float32")))
            if problem[0] == "All-CNN-C" and len(names) == 2:
                raise RuntimeError("CUDA out of memory. Tried to allocate 20 GiB")

        return call

    sides.EIGHT, sides.ours, sides.theirs = ["KFAC", "KFLR"], side, side
    with installed() as cupy:
        core = cupy._core
        cupy.get_default_memory_pool = lambda: types.SimpleNamespace(free_all_blocks=lambda: None)
        for name, module in {"torch": torch, "problems": problems, "sides": sides}.items():
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.delitem(sys.modules, "gpu", raising=False)
        import gpu

        monkeypatch.setattr(gpu, "clocks", lambda: {})
        rows = gpu.sections(True)["gpu"](2)
        assert set(settings) == {(True, True, 7)}
        settings.clear()
        gpu.sections(False)["gpu"](2)
        assert set(settings) == {(False, False, 1)}
    sys.modules.pop("gpu")
    wanted = ["gradient", "KFAC", "KFLR", "these eight in one call"]
    assert list(rows) == [f"{name}: {label}" for name in ("3c3d, N = 128", "All-CNN-C, N = 64") for label in wanted]
    assert [len(row) for row in rows.values()] == [2] * 7 + [0]
    assert {problem for problem, _ in asked} == {("3c3d", 128, "cuda"), ("All-CNN-C", 64, "cuda")}
