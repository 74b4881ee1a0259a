"""Weights files in, models out."""
