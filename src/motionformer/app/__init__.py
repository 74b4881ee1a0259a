"""The browser page: ready clips or a video of one's own in; top-5, timeline and trajectories out. `serve` starts it.

models (`questions.py`) + clips (`ready.py`, `visitors.py`) → `routes.py` → `page/`, plain HTML, CSS and JavaScript.
"""

from motionformer.app.limits import Limits
from motionformer.app.serve import serve

__all__ = ["Limits", "serve"]
