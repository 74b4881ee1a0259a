"""Decode, sample, transform; knows nothing of labels, models or recipes."""
