"""Measurements: reports for people, never tests. `make benchmark` runs them all."""
