"""How much the tests try: the Hypothesis profiles `quick`, `ci` and `full`, and slow cases.

The targets of make choose one with `--hypothesis-profile`. A test sets no number; one with
expensive examples uses a fraction of the profile's. One that looks at everything for seconds is
`thorough`, which `make test` leaves out; one that takes minutes is `slow`.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

PROFILES = {"quick": 30, "ci": 100, "full": 1500}


def register():
    """Register the profiles, and load `quick` for a run that chooses none.

    `quick` and `ci` try the same examples in every run, but not the same as each other; `full`
    looks for new ones. None times an example or its making, because a busy machine would fail.

    Hypothesis also draws constants of the source files that are imported. Which ones those are
    depends on the tests that ran before in the same process, and each change of a constant in
    the product would change the examples of unrelated tests. So no profile draws them.
    """
    providers._get_local_constants = lambda: providers._local_constants  # stays empty
    for name, n_examples in PROFILES.items():
        settings.register_profile(
            name,
            max_examples=n_examples,
            deadline=None,
            derandomize=name != "full",
            suppress_health_check=[HealthCheck.too_slow],
        )
    settings.load_profile("quick")


def examples(fraction, **options):
    """The settings of a test with expensive examples: this fraction of the profile's number."""
    n_examples = max(1, round(settings().max_examples * fraction))
    return settings(max_examples=n_examples, **options)


def first_and_slow(values):
    """Values to parametrize with: the first always runs, the others are slow."""
    return _first_and_others(values, pytest.mark.slow)


def first_and_thorough(values):
    """Values to parametrize with: the first always runs, the others are thorough."""
    return _first_and_others(values, pytest.mark.thorough)


def _first_and_others(values, mark):
    first, *others = values
    return [first, *(pytest.param(value, marks=mark) for value in others)]
