"""What a model costs: parameters, multiply-adds (the paper's convention and ours), memory."""

from motionformer.costs.measure import Cost, measure
from motionformer.costs.paper import paper_macs, released_parameters

__all__ = ["Cost", "measure", "paper_macs", "released_parameters"]
