"""Measurements of the running program: ``python -m benchmarks`` (see docs/benchmarks.md)."""
