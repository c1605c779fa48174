"""Means and intervals over seeds, by pencil and paper and by scipy used another way."""

import math

import numpy as np
import pytest
from scipy import stats

from lookback.intervals import Estimate, estimate, paired_difference

T_1 = 12.7062  # Student's t at 0.975 with 1 degree of freedom, from a printed table
T_2 = 4.3027  # with 2


def known(found: Estimate | None) -> Estimate:
    assert found is not None
    return found


def width(found: Estimate) -> float:
    assert found.half_width is not None
    return found.half_width


def test_three_values_by_hand() -> None:
    found = known(estimate([2.0, 4.0, 9.0]))  # mean 5; squares 9 + 1 + 16 = 26, variance 13
    assert (found.mean, found.count) == (5.0, 3)
    assert width(found) == pytest.approx(T_2 * math.sqrt(13 / 3), rel=1e-4)
    assert found.low == found.mean - width(found)
    assert found.high == found.mean + width(found)


def test_two_values_by_hand() -> None:
    found = known(estimate([1.0, 4.0]))  # mean 2.5; squares 2 * 2.25, variance 4.5, error of the mean 1.5
    assert (found.mean, found.count) == (2.5, 2)
    assert width(found) == pytest.approx(T_1 * 1.5, rel=1e-4)


@pytest.mark.parametrize("count", [4, 7, 20])
def test_more_values_as_scipy_has_it_from_the_error_of_the_mean(count: int) -> None:
    values = np.random.default_rng(count).normal(3.0, 5.0, count).tolist()
    found = known(estimate(values))
    low, high = stats.t.interval(0.95, count - 1, loc=np.mean(values), scale=stats.sem(values))
    assert [found.low, found.high] == pytest.approx([low, high])


def test_one_value_has_no_interval() -> None:
    found = known(estimate([0.75]))
    assert found == Estimate(0.75, None, 1)
    assert found.low == found.high == 0.75


def test_equal_values_have_an_interval_without_width_and_exactly_that_mean() -> None:
    assert estimate([0.1, 0.1, 0.1]) == Estimate(0.1, 0.0, 3)  # 0.1 + 0.1 + 0.1 is not 0.3


def test_no_values_are_no_estimate() -> None:
    assert estimate([]) is None


def test_differences_are_taken_on_shared_seeds_only_each_with_its_own() -> None:
    values = {0: 0.9, 5: 0.8, 3: 0.7}
    baseline = {3: 0.4, 0: 0.5, 7: 0.1}
    found = known(paired_difference(values, baseline))  # 0.4 and 0.3: error of the mean 0.05
    assert found.mean == pytest.approx(0.35)
    assert found.count == 2
    assert width(found) == pytest.approx(T_1 * 0.05, rel=1e-4)


def test_a_steady_difference_is_seen_through_seeds_that_vary_much() -> None:
    values = {1: 0.25, 2: 0.5, 4: 1.0}
    found = known(paired_difference(values, {seed: value + 0.125 for seed, value in values.items()}))
    assert found == Estimate(-0.125, 0.0, 3)
    assert width(known(estimate(list(values.values())))) > 0.9


def test_without_a_shared_seed_there_is_no_difference() -> None:
    assert paired_difference({0: 0.9}, {1: 0.9}) is None
