"""Every table and figure of the paper as a command: what it compares, at this machine's scale and at the paper's."""

from motionformer.reproduce.experiments import EXPERIMENTS, Experiment, Row
from motionformer.reproduce.run import run_experiment
from motionformer.reproduce.table import Outcome, collect, write_outcome

__all__ = ["EXPERIMENTS", "Experiment", "Outcome", "Row", "collect", "run_experiment", "write_outcome"]
