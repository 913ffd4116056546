"""Adapters to optional libraries. They exchange plain arrays and import the library when called. Modules whose models
are subclasses of the library's models import it at once."""
