"""What a search costs from step to step."""

import pytest

from train.rollout_settings import GrpoSettings
from train.rollouts.rewards import next_search_cost

BUDGET = GrpoSettings(search_cost=0.1, search_budget=2.5, search_cost_rate=0.01)


@pytest.mark.parametrize(
    ("searches", "cost"), [(3.5, 0.11), (2.5, 0.1), (1.5, 0.09), (float("nan"), 0.1)], ids=["more", "as many", "fewer", "all failed"]
)
def test_a_search_costs_more_where_there_are_more_than_the_budget_and_less_where_there_are_fewer(searches, cost):
    assert next_search_cost(BUDGET, 0.1, searches) == pytest.approx(cost)


def test_searches_are_never_paid_for():
    assert next_search_cost(BUDGET, 0.005, 0.0) == 0.0


def test_without_a_budget_the_cost_stays():
    assert next_search_cost(GrpoSettings(search_cost=0.1), 0.1, 9.0) == 0.1
