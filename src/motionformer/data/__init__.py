"""Annotation files and folders → records → clips; the built-in motion benchmark."""
