"""The browser page: example clips or an uploaded video in; top-5, timeline and trajectories out. `serve` starts it.

models (`models.py`) + videos (`sessions.py`) → `routes.py` → `page/`, plain HTML, CSS and JavaScript.
"""

from motionformer.serve.server import serve
from motionformer.serve.sessions import Limits

__all__ = ["Limits", "serve"]
