"""Annotation files and folders become records, records become clips. Knows nothing of models or recipes."""
