from collections import Counter

from distill.steps.questions.even_sample import even_sample

# Group a has 90 items, b and c have 5 each.
ITEMS = [f"{group}{number}" for group, count in (("a", 90), ("b", 5), ("c", 5)) for number in range(count)]


def sample(size, items=ITEMS):
    return even_sample(items, size, id_of=str, group_of=lambda item: item[0])


def test_groups_give_the_same_number_while_they_can():
    assert Counter(item[0] for item in sample(9)) == {"a": 3, "b": 3, "c": 3}
    assert Counter(item[0] for item in sample(40)) == {"a": 30, "b": 5, "c": 5}


def test_it_is_not_the_first_items_but_they_keep_their_order():
    assert sample(30) != ITEMS[:30]
    assert sample(30) == sorted(sample(30), key=ITEMS.index)


def test_a_smaller_sample_is_part_of_a_larger_one_whatever_the_order_of_the_items():
    assert set(sample(7)) < set(sample(20)) < set(sample(60))
    assert set(sample(20, ITEMS[::-1])) == set(sample(20))


def test_a_sample_larger_than_the_items_is_all_of_them():
    assert sample(1_000) == ITEMS
