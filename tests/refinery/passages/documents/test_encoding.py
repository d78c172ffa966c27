"""Text whose encoding nobody declared."""

from pathlib import Path

import pytest

from refinery.errors import RecordError
from refinery.passages.documents.encoding import decoded

TEXTS = {
    "cp1252": "L'été dernier, nous sommes allés à la forêt près de la rivière. Elle était très belle, malgré la pluie.",
    "cp1250": "Zażółć gęślą jaźń. Kierownik działu zatwierdza podróże służbowe pracowników.",
    "cp1251": "Руководитель отдела утверждает командировки сотрудников. Это занимает два дня.",
    "shift_jis": "部長が出張を承認します。通常は二日かかります。旅費規程を参照してください。",
    "utf-16": "The head of the department approves journeys. It takes two days.",
    "utf-8-sig": "Die Größe der Straße",
}


@pytest.mark.parametrize("encoding", TEXTS)
def test_a_text_is_read_in_the_encoding_that_it_was_saved_in(encoding):
    assert decoded(TEXTS[encoding].encode(encoding), Path("a.txt")) == TEXTS[encoding]


def test_an_encoding_other_than_utf8_is_named(caplog):
    decoded(TEXTS["cp1251"].encode("cp1251"), Path("a.txt"))
    assert caplog.messages == ["a.txt: is not UTF-8, and is read as cp1251."]


def test_content_that_is_not_text_is_refused():
    with pytest.raises(RecordError, match=r"a\.txt: is not UTF-8, nor text in another encoding"):
        decoded(bytes(range(256)), Path("a.txt"))
