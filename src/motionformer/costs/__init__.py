"""What a model costs: parameters, multiply-adds (the paper's convention and ours), memory."""

from motionformer.costs.measure import Cost, measure
from motionformer.costs.paper import paper_macs, released_parameters
from motionformer.costs.peak import training_step_peak

__all__ = ["Cost", "measure", "paper_macs", "released_parameters", "training_step_peak"]
