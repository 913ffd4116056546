"""Loops over plain arrays: no objects, no validation, no exceptions. Importing this package imports Numba."""
