"""How Hypothesis draws: a few examples, the same each time; or many, with HYPOTHESIS_PROFILE=long."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("ci", max_examples=50, derandomize=True, deadline=None)
settings.register_profile(
    "long", max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
