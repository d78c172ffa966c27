from distill.steps.linked_passages import linked_pairs
from refinery.contract.records import Passage


def test_a_section_is_mentioned_by_the_title_of_its_document():
    passages = [
        Passage(id="guide.md:1", title="Guide", text="See Lyon."),
        Passage(id="lyon.md:1", title="Lyon (city)", text="A city."),
        Passage(id="lyon.md#rivers:1", title="Lyon › Rivers", text="Lyon has two. See the Guide about Rivers."),
    ]
    found = [(one.id, other.id) for one, other in linked_pairs(passages, links_per_passage=3)]
    assert found == [("guide.md:1", "lyon.md:1"), ("lyon.md#rivers:1", "guide.md:1")]
