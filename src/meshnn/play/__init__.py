"""`meshnn play`: a net that is drawn, changed and watched in the browser while it learns (extra `play`).

`server.py` serves the page and its socket; `worker.py` runs one process per page, with a `PlaySession` that takes
orders (`session.py`) for a `PlayNet` (`net.py`) and returns messages (`views.py`).
"""
