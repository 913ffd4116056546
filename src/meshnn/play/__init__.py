"""`meshnn play`: a net that is drawn, changed and watched in the browser while it learns (extra `play`).

`server.py` hands out the page and talks to it, `session.py` has one process for every page that is open, `trainer.py`
is what runs in it: a `PlaySession` (`bench.py`) with a net, samples and a solver that goes on in short slices.
"""
