from refinery.runtime.files.fingerprint import file_fingerprint, text_fingerprint


def test_a_file_is_named_by_its_bytes(tmp_path):
    for name, content in (("a", b"Lyon"), ("b", b"Lyon"), ("c", b"Lyon\n")):
        (tmp_path / name).write_bytes(content)
    a, b, c = (file_fingerprint(tmp_path / name) for name in "abc")
    assert a == b != c
    assert len(a) == 16


def test_where_one_text_ends_and_the_next_begins_counts():
    assert text_fingerprint(["ab", "c"]) != text_fingerprint(["a", "bc"]) != text_fingerprint(["abc"])
    assert text_fingerprint(["\ud800"]) != text_fingerprint([])
