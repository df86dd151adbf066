"""Settings for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A machine that is busy is no reason to fail: nothing in the suite is judged by how long it takes.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")
