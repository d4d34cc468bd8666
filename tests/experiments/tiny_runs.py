"""Real runs on a few made-up images, which need no files."""

from logreg_runs import SPLIT

from gbackprop.experiments import runs


def run(spec, data_dir, device="cpu", checkpoint=None, report=None):
    """As `runs.run`, whatever `data_dir`."""
    return runs.run(spec, None, device=device, checkpoint=checkpoint, report=report, split=SPLIT, workers=1)
