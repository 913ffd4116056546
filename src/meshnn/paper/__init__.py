"""The experiments of the paper: definitions of trials, and tables and figures from saved results."""
