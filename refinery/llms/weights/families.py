"""The three families of models, recognized by a checkpoint's configuration: causal, seq2seq (T5) and classifier (an encoder)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from refinery.llms.weights.embeddings import embeddings_of
from refinery.llms.weights.hub_files import read_small_json

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

FamilyName = Literal["causal", "seq2seq", "classifier"]
_OF_TASK_TYPE: dict[str, FamilyName] = {"CAUSAL_LM": "causal", "SEQ_2_SEQ_LM": "seq2seq", "SEQ_CLS": "classifier"}


def checkpoint_family(path: str) -> FamilyName:
    """The family of a whole checkpoint or of an adapter, from its configuration; a folder without one passes for causal."""
    adapter = read_small_json(path, "adapter_config.json")
    if adapter:
        return _OF_TASK_TYPE[adapter["task_type"]]
    config = read_small_json(path, "config.json") or {}
    if config.get("is_encoder_decoder"):
        return "seq2seq"
    return "classifier" if any("ForSequenceClassification" in name for name in config.get("architectures") or []) else "causal"


def checkpoint_labels(path: str) -> list[str]:
    """The labels of a classifier, or of an adapter that was saved with its model's configuration."""
    id2label = (read_small_json(path, "config.json") or {}).get("id2label", {})
    return [id2label[key] for key in sorted(id2label, key=int)]


def auto_class(family: FamilyName) -> Any:
    """The class of transformers that loads the family's checkpoints."""
    import transformers

    return {
        "causal": transformers.AutoModelForCausalLM,
        "seq2seq": transformers.AutoModelForSeq2SeqLM,
        "classifier": transformers.AutoModelForSequenceClassification,
    }[family]


def head_labels(model: "PreTrainedModel | PeftModel") -> list[str]:
    """The labels of a classifier that is loaded, in the order of its head's rows."""
    labels = cast(dict[int, str], model.config.id2label)
    return [labels[i] for i in sorted(labels)]


def label_arguments(labels: Sequence[str]) -> dict[str, Any]:
    """The arguments of `from_pretrained` for a classifier's labels; empty if there are none."""
    if not labels:
        return {}
    return {"num_labels": len(labels), "id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}


def tell_true_tying(model: "PreTrainedModel") -> None:
    """Make the configuration say whether the output head is the input embedding.

    transformers 5 sets `tie_word_embeddings` for every T5, but keeps the head of Flan-T5, whose weights differ. PEFT believes the
    configuration, and would overwrite head rows with input rows the moment token rows are trained.
    """
    model.config.tie_word_embeddings = len(embeddings_of(model)) == 1


def share_embedding(model: Any) -> None:
    """Let T5's encoder and decoder use the module `shared` itself, including an adapter's changes to it.

    Each has a separate embedding module with the same weights. PEFT ties the rows that it trains only if the head is tied too. In Flan-T5
    the rows that it trains on `shared` would not be used at all (transformers 5.23, peft 0.21).
    """
    if not model.config.tie_word_embeddings:
        model.encoder.embed_tokens = model.decoder.embed_tokens = model.shared
