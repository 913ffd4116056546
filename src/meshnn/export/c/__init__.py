"""Export to C: the layout of a header, its templates, quantisation, and headers that are compiled and run."""
