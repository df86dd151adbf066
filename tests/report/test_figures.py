"""The step time of a signal, and the texts of figures."""

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from agent.recording.report.report_series import period_of
from agent.recording.report.report_wording import ranges, share_text, span_text


def steps(period: float, samples: int = 600, fine: int = 20, jitter: float = 0.01) -> list[float]:
    """Work of 80 % of each step and exchange in the rest, averaged over each sample, with jittered steps."""
    dice = random.Random(7)
    signal: list[float] = []
    while len(signal) < samples * fine:
        length = period * (1 + jitter * dice.uniform(-1, 1)) * fine
        signal += [1.0] * round(0.8 * length) + [0.2] * round(0.2 * length)
    return [math.fsum(signal[at : at + fine]) / fine for at in range(0, samples * fine, fine)]


def test_a_step_of_ten_samples_is_found_and_none_in_shorter_ones_or_noise() -> None:
    for period in (12.5, 20.0, 33.3, 80.0):
        period_and_clarity = period_of(steps(period))
        assert period_and_clarity is not None
        assert period_and_clarity[0] == pytest.approx(period, rel=0.02)
    for period in (0.7, 1.3, 2.4, 3.8, 5.5, 7.3):
        assert period_of(steps(period)) is None, period
    dice = random.Random(3)
    assert period_of([dice.random() for _ in range(600)]) is None
    assert period_of([1.0] * 600) is None
    assert period_of([float(one) for one in range(600)]) is None


@pytest.mark.parametrize(
    ("words", "given", "text"),
    [
        *((span_text, seconds, text) for seconds, text in (
            (0, "0 s"), (0.5, "0.5 s"), (3, "3 s"), (9.5, "9.5 s"), (10.4, "10 s"), (59.6, "1 min"), (60, "1 min"),
            (61, "1 min 1 s"), (3599, "59 min 59 s"), (3600, "1 h"), (3659, "1 h"), (3660, "1 h 1 min"),
            (86_399, "23 h 59 min"), (86_400, "1 d"), (90_000, "1 d 1 h"), (270_000, "3 d 3 h"))),
        *((share_text, share, text) for share, text in (
            (0.0, "0%"), (0.001, "under 1%"), (0.005, "under 1%"), (0.0051, "1%"), (0.5, "50%"), (0.9949, "99%"),
            (0.995, "over 99%"), (1.0, "100%"), (1.004, "100%"))),
        *((ranges, names.split(), text) for names, text in (
            ("", ""), ("5", "5"), ("0 1 2 7", "0-2, 7"), ("10 9 2 1", "1-2, 9-10"), ("a\x1b 1", "1, a\\x1b"),
            ("99999999 1", "1, 99999999"), ("999999999 1", "1, 999999999"), ("x" * 40, "x" * 29 + "..."))),
    ],
)  # fmt: skip
def test_words_for_numbers(words: Callable[[Any], str], given: object, text: str) -> None:
    assert words(given) == text
