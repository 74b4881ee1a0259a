"""A model as a file that runs without this package: trace → write → run the file → compare → keep it.

Start in `write.py`. A new format is a `Format` in a file of its own and a line in `write.FORMATS`.
"""

from motionformer.export.check import Agreement
from motionformer.export.write import FORMATS, ExportReport, export_model

__all__ = ["FORMATS", "Agreement", "ExportReport", "export_model"]
