"""A model as a file that runs without this package, and such files as models. Start in `write.py`; a new format is an
entry in `FORMATS`."""

from motionformer.export.run import ExportedModel, open_model
from motionformer.export.write import FORMATS, Agreement, ExportReport, export_model

__all__ = ["FORMATS", "Agreement", "ExportReport", "ExportedModel", "export_model", "open_model"]
