"""START HERE: an experiment and a request become an outcome. What is more than a table of recipes has a module."""

from collections.abc import Callable
from dataclasses import replace

import torch

from motionformer.experiments.tables.arena import compare_attention
from motionformer.experiments.tables.costs import count_costs
from motionformer.experiments.tables.experiments import Experiment
from motionformer.experiments.tables.following import follow_objects
from motionformer.experiments.tables.gains import measure_gains
from motionformer.experiments.tables.maps import measure_maps
from motionformer.experiments.tables.memory import measure_memory
from motionformer.experiments.tables.outcome import Outcome
from motionformer.experiments.tables.request import Request
from motionformer.experiments.tables.trained import train_table

STUDIES: dict[str, Callable[[Experiment, Request], Outcome]] = {
    "t3m": measure_memory,
    "t5": compare_attention,
    "a3": measure_gains,
    "a4": measure_maps,
    "a5": count_costs,
    "a6": follow_objects,
}


def run_experiment(experiment: Experiment, request: Request) -> Outcome:
    """Whatever makes the experiment: its own study, or training its rows. `threads` 0 is all."""
    study = STUDIES.get(experiment.id, train_table)
    threads = request.threads or torch.get_num_threads()
    torch.set_num_threads(threads)
    return study(experiment, replace(request, threads=threads))
