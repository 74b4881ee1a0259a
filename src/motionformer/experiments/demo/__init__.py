"""Everything once, with no download: make videos, train, test, look; one page to read."""

from motionformer.experiments.demo.run import Demo, run_demo

__all__ = ["Demo", "run_demo"]
