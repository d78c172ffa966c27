import pytest

from refinery.repeated_questions import AskedQuestions


@pytest.mark.parametrize(
    ("text", "again", "repeated"),
    [
        ("In which year was the film Dune released?", "In which year was the film Dune first released?", True),
        ("Which country is the director of the film Dune from?", "Which country is the director of the film Solaris from?", False),
        ("Who is the author of The Book?", "Who is the author of The Book of Mormon?", False),
        ("How many people lived in the city of Lyon in 1990?", "How many people lived in the city of Lyon in 1999?", False),
        ("Which country is the author of The Bell Circus from?", "Which country is the author of The Circus Bell from?", False),
        ("Which of the films Dune and Solaris is older?", "Which of the films Solaris and Dune is older?", True),
        ("Who is the author of The Book?", "Who is the author of Book?", True),
        ("who wrote the phantom of the opera music", "who wrote the music phantom of the opera", True),
        ("who played the role of the mother in the movie dune", "who played the role of the mother in the movie solaris", False),
    ],
)
def test_nearly_the_same_words_repeat_a_question_unless_they_name_something_else(text, again, repeated):
    asked = AskedQuestions[str]()
    asked.add(text, "first")
    assert (asked.nearly_the_same(again) is not None) is repeated


def test_the_same_words_are_found_whatever_their_case():
    asked = AskedQuestions[str]()
    asked.add("Who directed Dune?", "first")
    assert asked.same("who directed  dune") == "first"
