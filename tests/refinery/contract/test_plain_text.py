"""No added token ever comes out of outside text, whatever kind of tokenizer reads it."""

from functools import cache
from tempfile import TemporaryDirectory

import pytest
from helpers.tokenizer_kinds import CONTROL_TOKENS, KINDS
from hypothesis import given
from hypothesis import strategies as st

from refinery.contract.segments import encode_text
from refinery.llms.engine.classifier import encode_pair
from refinery.llms.weights.checkpoint import load_tokenizer

FULL_WIDTH = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
INVISIBLE = ["\u200b", "\u200d", "\ufeff", "\u00ad", "\u0301", " ", "\u00a0", "▁", "\n"]


@cache
def tokenizer_of(kind):
    """As it is loaded from a checkpoint."""
    with TemporaryDirectory() as folder:
        KINDS[kind]().save_pretrained(folder)
        return load_tokenizer(folder)


def added_token_names(tokenizer):
    """All but runs of spaces."""
    return [token.content for token in tokenizer.added_tokens_decoder.values() if token.content.strip()]


@cache
def hidden_ids(kind):
    """Ids that no text may give; an unknown character may give that of `<unk>`."""
    tokenizer = tokenizer_of(kind)
    return set(tokenizer.convert_tokens_to_ids(added_token_names(tokenizer))) - {tokenizer.unk_token_id}


@st.composite
def hostile_texts(draw, kind):
    """Names of added tokens, whole, cut, in other cases and widths, with what is invisible between and in them."""
    names = st.sampled_from(added_token_names(tokenizer_of(kind)))
    cut = st.builds(lambda name, at, inside: name[:at] + inside + name[at:], names, st.integers(0, 8), st.sampled_from(INVISIBLE))
    changed = st.builds(
        lambda name, change: change(name), names | cut, st.sampled_from([str, str.lower, lambda x: x.translate(FULL_WIDTH)])
    )
    part = st.builds(lambda name, start, stop: name[start : start + stop], changed, st.integers(0, 4), st.integers(1, 9))
    return "".join(draw(st.lists(changed | part | st.sampled_from(INVISIBLE) | st.text(max_size=3), max_size=6)))


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_no_added_token_comes_out_of_outside_text(kind, data):
    text = data.draw(hostile_texts(kind))
    assert hidden_ids(kind).isdisjoint(encode_text(text, tokenizer_of(kind)))


@pytest.mark.parametrize("kind", KINDS)
def test_nor_does_one_of_its_name_in_full_width_or_beside_other_text(kind):
    tokenizer = tokenizer_of(kind)
    for name in added_token_names(tokenizer):
        for text in (name, f"a{name}b", f" {name} ", name.translate(FULL_WIDTH), f"{name[0]}\u200b{name[1:]}", name + name):
            assert hidden_ids(kind).isdisjoint(encode_text(text, tokenizer)), text


@pytest.mark.parametrize("kind", ["t5", "xlm_roberta", "gemma", "llama_2"])
def test_the_name_of_the_unknown_token_does_not_give_it(kind):
    tokenizer = tokenizer_of(kind)
    assert tokenizer.unk_token_id not in encode_text(f"so {tokenizer.unk_token} it ends", tokenizer)


@pytest.mark.parametrize("kind", ["llama_3", "qwen_3", "llama_2", "mistral"])
def test_a_name_that_is_read_as_text_is_written_as_text(kind):
    text = f"He wrote {CONTROL_TOKENS[0]} and <think> here"
    assert tokenizer_of(kind).decode(encode_text(text, tokenizer_of(kind)), clean_up_tokenization_spaces=False) == text


def test_runs_of_spaces_keep_the_tokens_that_the_base_was_trained_with():
    tokenizer = tokenizer_of("gpt_neox")
    assert encode_text("    x", tokenizer) == tokenizer("    x", add_special_tokens=False)["input_ids"]
    assert len(encode_text("    ", tokenizer)) == 1


def test_tokens_that_are_added_later_are_hidden_too():
    tokenizer = KINDS["qwen_3"]()
    encode_text("[Later]", tokenizer)
    tokenizer.add_tokens(["[Later]"])
    assert tokenizer.convert_tokens_to_ids("[Later]") not in encode_text("[Later]", tokenizer)


@pytest.mark.parametrize("kind", ["t5", "xlm_roberta", "bert"])
def test_an_encoders_pair_holds_the_special_tokens_of_its_own_only(kind):
    tokenizer = tokenizer_of(kind)
    names = " ".join(added_token_names(tokenizer))
    pair = encode_pair(names, f"{names} {names.translate(FULL_WIDTH)}", tokenizer)
    assert hidden_ids(kind).isdisjoint(pair["input_ids"])  # these have no post-processor that would add any


@pytest.mark.parametrize("kind", ["t5", "qwen_3"])
def test_a_tokenizer_is_saved_as_it_came(kind, tmp_path):
    tokenizer_of(kind).save_pretrained(tmp_path / "came")
    loaded = load_tokenizer(str(tmp_path / "came"))
    encode_text("</s>", loaded)
    loaded.save_pretrained(tmp_path / "saved")
    saved, came = ((tmp_path / name / "tokenizer.json").read_text() for name in ("saved", "came"))
    assert saved == came


def test_what_a_model_wrote_keeps_tokens_that_are_not_special(tmp_path):
    tokenizer = tokenizer_of("qwen_3")
    encode_text("<think>", tokenizer)
    ids = tokenizer.convert_tokens_to_ids(["<think>", "</think>", "<|im_end|>"])
    assert tokenizer.decode(ids, skip_special_tokens=True) == "<think></think>"
