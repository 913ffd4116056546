import os

from hypothesis import HealthCheck, settings

os.environ.setdefault("MESHNN_QUIET", "1")

# The same examples every time and no time limit: the first call of a kernel compiles it.
settings.register_profile(
    "meshnn", derandomize=True, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("meshnn")
