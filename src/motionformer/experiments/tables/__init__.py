"""Every table and figure of the paper as a command: what it compares, at this machine's scale and at the paper's."""

from motionformer.experiments.tables.experiments import EXPERIMENTS, Experiment, Row

__all__ = ["EXPERIMENTS", "Experiment", "Row"]
