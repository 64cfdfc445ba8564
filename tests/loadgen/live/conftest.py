"""Locust without its patches: they would reach every test of this process, and cannot follow an import of botocore."""

import os

_SKIP = "LOCUST_SKIP_MONKEY_PATCH"

os.environ[_SKIP] = "1"
try:
    import locust  # noqa: F401
finally:
    # Processes that tests start need the patches.
    del os.environ[_SKIP]
