import pytest

from distill.steps.questions.proper_names import names_in, spans_in


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("The Bank of England lent J. R. Smith 10 Kilometers, of road.", ["Bank of England", "J R Smith"]),
        ("In Lyon, Maria Torvel met Pat O'Brien's friend.", ["Maria Torvel", "Pat O Brien"]),
        ("He played at Texas A&M. University came later.", ["Texas A M"]),
        ("Anna Lee and Bo Ray", ["Anna Lee", "Bo Ray"]),
        ("It rained. However, This was 1994 in Lyon of.", []),
        ("", []),
    ],
)
def test_names_are_spans_of_capitalized_words(text, names):
    assert [" ".join(name) for name in names_in(text)] == names


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("He moved to Southern California.", True),
        ("In Southern California (Lyon), it rains.", False),
        ("In Southern California, Lyon is unknown.", True),
        ("She studied at the University of Southern California in 1994.", False),
        ("The Southern California Bank closed.", False),
        ("The southern california", False),
    ],
)
def test_a_title_within_a_longer_name_is_not_mentioned(text, found):
    wanted = {("Southern", "California")}
    assert list(spans_in(text, wanted, [2])) == ([("Southern", "California")] if found else [])
