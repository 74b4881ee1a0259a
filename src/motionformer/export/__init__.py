"""A model as a file that runs without this package. Start in `write.py`; a new format is an entry in `FORMATS`."""

from motionformer.export.write import FORMATS, Agreement, ExportReport, export_model

__all__ = ["FORMATS", "Agreement", "ExportReport", "export_model"]
