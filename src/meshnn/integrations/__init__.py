"""Adapters to optional libraries. Each takes and gives plain arrays and imports its library only when called."""
