"""Settings of the property tests."""

from hypothesis import HealthCheck, settings

# No time limit on an example: a busy machine would fail tests that are right.
settings.register_profile("graph", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("graph")
