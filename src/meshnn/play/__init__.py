"""`meshnn play`: a browser page that draws and edits a net during training (extra `play`).

`server.py` serves the page and its socket. `worker.py` runs one process per page, in which a `PlaySession`
(`session.py`) executes orders on a `PlayNet` (`net.py`) and returns messages (`views.py`).
"""
