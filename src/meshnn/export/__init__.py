"""Nets as source code for places where Python is not: C headers without a library behind them."""
