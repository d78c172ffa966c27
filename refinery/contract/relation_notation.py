"""MuSiQue's relation notation, such as `Anna Benson >> spouse`, as a question.

About a third of its sub-questions are written this way. The relations are properties of Wikidata. Each question below fits every value of
its property, whatever kind of thing the subject is, and takes no side on time: a relation that needs one form for the living and another
for the dead, or one for films and another for books, has no question here.
"""

import re
from collections.abc import Sequence

from refinery.contract.records import SubQuestion

QUESTIONS = {
    "applies to jurisdiction": "Which jurisdiction does {} apply to?",
    "architect": "Who is the architect of {}?",
    "author": "Who is the author of {}?",
    "award received": "Which award did {} receive?",
    "capital of": "What is {} the capital of?",
    "capital": "What is the capital of {}?",
    "cast member": "Who is a cast member of {}?",
    "child": "Who is a child of {}?",
    "composer": "Who is the composer of {}?",
    "conflict": "In which conflict did {} take part?",
    "contains administrative territorial entity": "Which administrative territorial entity does {} contain?",
    "continent": "On which continent is {}?",
    "country of citizenship": "What is the country of citizenship of {}?",
    "country of origin": "What is the country of origin of {}?",
    "country": "Which country is {} in?",
    "creator": "Who is the creator of {}?",
    "crosses": "What does {} cross?",
    "date of birth": "When was {} born?",
    "date of death": "When did {} die?",
    "developer": "Who is the developer of {}?",
    "director": "Who is the director of {}?",
    "distributed by": "Who distributed {}?",
    "educated at": "Where was {} educated?",
    "employer": "Who is the employer of {}?",
    "family": "Which family does {} belong to?",
    "father": "Who is the father of {}?",
    "field of work": "What is the field of work of {}?",
    "followed by": "What followed {}?",
    "follows": "What did {} follow?",
    "founded by": "Who founded {}?",
    "genre": "What is the genre of {}?",
    "has part": "What is a part of {}?",
    "headquarters location": "Where is the headquarters of {}?",
    "instance of": "What is {} an instance of?",
    "instrument": "Which instrument does {} play?",
    "languages spoken, written or signed": "Which languages does {} speak or write?",
    "licensed to broadcast to": "Which place is {} licensed to broadcast to?",
    "located in the administrative territorial entity": "Which administrative territorial entity is {} located in?",
    "located on terrain feature": "On which terrain feature is {} located?",
    "location of formation": "Where was {} formed?",
    "location": "Where is {} located?",
    "lyrics by": "Who wrote the lyrics of {}?",
    "manufacturer": "Who is the manufacturer of {}?",
    "member of political party": "Which political party is {} a member of?",
    "member of sports team": "Which sports team is {} a member of?",
    "member of": "What is {} a member of?",
    "mother": "Who is the mother of {}?",
    "mouth of the watercourse": "Where is the mouth of {}?",
    "named after": "Who or what is {} named after?",
    "native language": "What is the native language of {}?",
    "notable work": "What is a notable work of {}?",
    "occupant": "Who is the occupant of {}?",
    "occupation": "What is the occupation of {}?",
    "official language": "What is the official language of {}?",
    "operator": "Who is the operator of {}?",
    "original broadcaster": "Who first broadcast {}?",
    "original network": "On which network was {} first shown?",
    "owned by": "Who owns {}?",
    "owner of": "What does {} own?",
    "part of the series": "Which series is {} part of?",
    "part of": "What is {} part of?",
    "performer": "Who is the performer of {}?",
    "place of birth": "Where was {} born?",
    "place of burial": "Where is {} buried?",
    "place of death": "Where did {} die?",
    "platform": "Which platform is {} for?",
    "position held": "Which position did {} hold?",
    "producer": "Who is the producer of {}?",
    "publisher": "Who is the publisher of {}?",
    "record label": "What is the record label of {}?",
    "religion": "What is the religion of {}?",
    "screenwriter": "Who is the screenwriter of {}?",
    "shares border with": "What shares a border with {}?",
    "sibling": "Who is a sibling of {}?",
    "sport": "What is the sport of {}?",
    "spouse": "Who is the spouse of {}?",
    "student of": "Who was {} a student of?",
    "winner": "Who is the winner of {}?",
    "work location": "What is the place of work of {}?",
}
_NOTATION = re.compile(r"(?P<subject>[^>]*\S) >> (?P<relation>[^>?]*[^>?\s])")


def is_notation(text: str) -> bool:
    """Whether a sub-question is in the notation."""
    return " >> " in text and _NOTATION.fullmatch(text.strip()) is not None


def as_question(text: str) -> str | None:
    """The question that a sub-question in the notation asks, or None if its relation has no rule."""
    parts = _NOTATION.fullmatch(text.strip())
    form = QUESTIONS.get(parts["relation"].lower()) if parts else None
    return form.replace("{}", parts["subject"]) if parts and form else None


def readable(steps: Sequence[SubQuestion]) -> list[SubQuestion]:
    """Annotated sub-questions with each relation that has a rule as a question; the others are unchanged."""
    return [step.model_copy(update={"text": as_question(step.text) or step.text}) for step in steps]
