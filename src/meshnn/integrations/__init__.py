"""Adapters to optional libraries. Each takes and gives plain arrays and imports its library only when called, or, where
models become those of another library, when its file is imported."""
