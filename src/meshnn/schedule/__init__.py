"""Who matters at which tick, and the lists of rows and edges that follow from it. No weights."""

from meshnn.schedule.lists import ROW_BYTES, ListBuilder, ListCounter, Ops, PlanTooLargeError
from meshnn.schedule.schedule import Schedule, Timing
from meshnn.schedule.walk import Walk

__all__ = ["ROW_BYTES", "ListBuilder", "ListCounter", "Ops", "PlanTooLargeError", "Schedule", "Timing", "Walk"]
