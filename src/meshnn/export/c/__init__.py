"""Nets as C: the layout of a header, its templates, whole numbers, and headers compiled and run."""
