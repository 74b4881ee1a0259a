"""A model as a file that runs without this package. Start in `write.py`; a new format is an entry in `formats.py`."""

from motionformer.export.formats import FORMATS
from motionformer.export.write import Agreement, ExportReport, export_model

__all__ = ["FORMATS", "Agreement", "ExportReport", "export_model"]
