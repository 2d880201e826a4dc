"""Settings of the whole test suite."""

from hypothesis import settings

# The same examples at every run, and no limit of time for one of them.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")
