"""A frozen backbone and your videos → features once, many heads, the best one as a model, and a report.

    from motionformer.probing import probe
    result = probe("videos/", "timm/vit_small_patch14_dinov2.lvd142m")

Start reading in `run.py`.
"""

from motionformer.probing.run import ProbeResult, probe

__all__ = ["ProbeResult", "probe"]
