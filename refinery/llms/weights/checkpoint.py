"""Load a checkpoint for inference: a whole model, an adapter on its base, or several adapters on one base.

An adapter trained here carries its control-token manifest and the tokenizer it was trained with, and is loaded on the unextended base
by one call: the base is resized first, which plain PEFT leaves to the caller (its own message is an IndexError). Only safetensors are
read and no code from a repository is run.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from refinery.contract.chat_template import AUTO, template_fingerprint, use_template
from refinery.contract.control_tokens import check_manifest, check_weights, read_manifest
from refinery.contract.tokenizer import Tokenizer
from refinery.errors import CheckpointError, conversion_remedy
from refinery.llms.weights.decoder_support import check_decoder
from refinery.llms.weights.embeddings import check_adapter_fits, check_bundle, embedding_rows, extend_vocabulary
from refinery.llms.weights.families import (
    FamilyName,
    auto_class,
    checkpoint_family,
    checkpoint_labels,
    label_arguments,
    share_embedding,
    tell_true_tying,
)
from refinery.llms.weights.hub_files import read_small_json, small_files, split_revision
from refinery.llms.weights.new_layers import check_new_layers, name_new_layers

if TYPE_CHECKING:
    from peft import LoraModel, PeftModel
    from transformers import PreTrainedModel

_OF_TOKENIZERS = ("tokenizer*", "vocab*", "*.model")
_IDLE = re.compile(r"^- `(\w+)`:", re.MULTILINE)  # how transformers names such a setting
DTYPES = ("float32", "bfloat16", "float16", "auto")


def load_checkpoint(
    path: str, *, dtype: str = "auto", chat_template: str = AUTO, decoded: bool = True
) -> tuple["PreTrainedModel", Tokenizer]:
    """(model, tokenizer) of a whole checkpoint, or of an adapter merged into its base. Raises CheckpointError when they disagree.

    `chat_template` is the recipe's choice: "auto", "none" or a file. A trained checkpoint accepts only the one that it was trained with.
    `decoded` says that our engine will decode it; see `load_base`.
    """
    adapter = read_adapter_config(path)
    if adapter is None:
        return load_base(path, dtype=dtype, chat_template=chat_template, decoded=decoded)
    base = adapter["base_model_name_or_path"]
    model, tokenizer = load_with_adapters(base, {"default": path}, dtype=dtype, chat_template=chat_template, decoded=decoded)
    if adapter.get("alora_invocation_tokens"):
        # An activated adapter affects only some tokens, so it cannot be merged. A PEFT model has its base's attributes.
        return cast("PreTrainedModel", model), tokenizer
    merged = cast("LoraModel", model.base_model).merge_and_unload()
    if adapter["task_type"] == "SEQ_2_SEQ_LM":
        share_embedding(merged)
    return cast("PreTrainedModel", merged), tokenizer


def load_base(
    path: str,
    *,
    dtype: str = "auto",
    chat_template: str = AUTO,
    family: FamilyName | None = None,
    labels: Sequence[str] = (),
    quantization: Any = None,
    decoded: bool = True,
) -> tuple["PreTrainedModel", Tokenizer]:
    """(model, tokenizer) of a whole checkpoint, of the family in its configuration unless one is given.

    Raises CheckpointError when there is none, or none that can be decoded here, before any weight is read.
    `labels` are those of a classifier that is to be trained: its head is new if the checkpoint has none. `quantization` is a
    transformers quantization configuration. If the model is not `decoded` here, it may be a hybrid, to be trained or merged, then served
    elsewhere.
    """
    from safetensors import SafetensorError
    from transformers import AutoConfig

    if read_small_json(path, "config.json") is None and read_adapter_config(path) is not None:
        raise CheckpointError(
            f"{path}: is an adapter, not a whole model. Merge it first (refinery merge {path} --output DIR) and name that folder."
        )
    if read_small_json(path, "config.json") is None:
        raise CheckpointError(f"{path}: has no config.json, so it is not a model. Name the folder that its config and weights are in.")
    tokenizer = load_tokenizer(path, chat_template)
    name, revision = split_revision(path)
    family = family or checkpoint_family(path)
    arguments = {"revision": revision or "main", "dtype": dtype, "use_safetensors": True, "trust_remote_code": False}
    try:
        if family == "causal" and decoded:
            check_decoder(AutoConfig.from_pretrained(name, revision=revision or "main", trust_remote_code=False), path=path)
        _check_weights(path)
        model, loaded = auto_class(family).from_pretrained(
            name, quantization_config=quantization, output_loading_info=True, **arguments, **label_arguments(labels)
        )
    except CheckpointError:
        raise
    except (OSError, ValueError) as error:
        remedy = conversion_remedy(error, path)
        raise CheckpointError(f"{path}: cannot be loaded as a {family} model ({_first_line(error)}).{remedy}") from None
    except SafetensorError as error:
        raise CheckpointError(f"{path}: its weights are damaged ({error}). Copy or download the checkpoint again.") from None
    _check_vocabulary(path, model, tokenizer)
    _drop_idle_settings(model)
    if family == "seq2seq":
        tell_true_tying(model)
    if family == "classifier":
        name_new_layers(model, loaded["missing_keys"])
    model.name_or_path = path  # an adapter trained on it records this as its base, revision included
    return model, tokenizer


def base_config(path: str) -> Any:
    """The configuration of a whole model, or None without one."""
    from transformers import AutoConfig

    if read_small_json(path, "config.json") is None:
        return None
    name, revision = split_revision(path)
    try:
        return AutoConfig.from_pretrained(name, revision=revision or "main", trust_remote_code=False)
    except (OSError, ValueError):  # loading the checkpoint reports it
        return None


def load_with_adapters(
    base: str, adapters: Mapping[str, str], *, dtype: str = "auto", chat_template: str = AUTO, decoded: bool = True
) -> tuple["PeftModel", Tokenizer]:
    """(PEFT model, tokenizer) with every adapter loaded under its name, ready for mixed batches.

    Raises CheckpointError when an adapter was not trained on such a base, or cannot share a batch with the others.
    """
    from peft import PeftModel
    from safetensors import SafetensorError

    configs = {path: _adapter_config(path) for path in adapters.values()}
    if len(configs) > 1:
        check_bundle(configs)
    first = next(iter(configs))
    family = checkpoint_family(first)
    labels = checkpoint_labels(first)
    model, tokenizer = load_base(base, dtype=dtype, chat_template=chat_template, family=family, labels=labels, decoded=decoded)
    rows = embedding_rows(model)
    adapted: PeftModel | None = None
    for name, path in adapters.items():
        folder = small_files(path)
        check_adapter_fits(path, folder, configs[path], base=base, rows=rows)
        check_weights(path, folder)
        check_new_layers(path, model, configs[path], base=base)
        if (Path(folder) / "tokenizer_config.json").exists():
            tokenizer = load_tokenizer(path, chat_template)
            extend_vocabulary(model, len(tokenizer))
        try:
            if adapted is None:
                adapted = PeftModel.from_pretrained(model, folder, adapter_name=name)
            else:
                adapted.load_adapter(folder, adapter_name=name)
        except (RuntimeError, ValueError) as error:  # a weight of another shape, or a layer that the base does not have
            trained_on = configs[path]["base_model_name_or_path"]
            raise CheckpointError(f"{path}: does not fit {base} ({_first_line(error)}). It was trained on {trained_on}.") from None
        except SafetensorError as error:
            raise CheckpointError(f"{path}: its weights are damaged ({error}). Copy or download the adapter again.") from None
    for path in adapters.values():
        check_template(path, tokenizer)  # the last adapter's tokenizer serves all of them
    assert adapted is not None, "there is an adapter"
    if (
        getattr(model.config, "pad_token_id", tokenizer.pad_token_id) is None
    ):  # the base's own; batches are padded as in the adapter's training
        model.config.pad_token_id = tokenizer.pad_token_id
    if family == "seq2seq":
        share_embedding(model)
    return adapted, tokenizer


def _adapter_config(path: str) -> dict[str, Any]:
    config = read_adapter_config(path)
    if config is None:
        raise CheckpointError(f"{path}: no adapter_config.json, so it is not an adapter. Name the output_dir of a LoRA run.")
    return config


def load_tokenizer(path: str, chat_template: str = AUTO) -> Tokenizer:
    """The tokenizer of a checkpoint under a recipe's choice of chat template, checked against the manifest saved beside it."""
    from transformers import AutoTokenizer

    folder = small_files(path)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:
        if not isinstance(error, OSError | ValueError) and type(error) is not Exception:  # the tokenizers library raises plain ones
            raise
        if not any(any(Path(folder).glob(pattern)) for pattern in _OF_TOKENIZERS):
            raise CheckpointError(f"{path}: has no tokenizer. Copy tokenizer.json and tokenizer_config.json into this folder.") from None
        raise CheckpointError(f"{path}: its tokenizer cannot be loaded ({_first_line(error)}).") from None
    check_manifest(folder, tokenizer)
    use_template(tokenizer, chat_template)
    check_template(path, tokenizer)
    return tokenizer


def check_template(path: str, tokenizer: Tokenizer) -> None:
    """Raise CheckpointError unless prompts go through the chat template, or the lack of one, that a checkpoint was trained with."""
    manifest = read_manifest(small_files(path))
    trained = manifest.get("chat_template")
    if "chat_template" in manifest and trained != template_fingerprint(tokenizer):
        was, now = (f"the chat template {name}" if name else "no chat template" for name in (trained, template_fingerprint(tokenizer)))
        raise CheckpointError(
            f"{path}: was trained with {was}, and would be prompted with {now}. Leave chat_template: auto, and train adapters that share a "
            "base alike."
        )


def read_adapter_config(path: str) -> dict[str, Any] | None:
    """The adapter's configuration, or None where `path` (a folder, or `owner/name[@revision]` on the hub) holds a whole model."""
    return read_small_json(path, "adapter_config.json")


def _check_weights(path: str) -> None:
    if not Path(path).is_dir():
        return
    check_weights(path, path)
    if not any(Path(path).glob("*.safetensors")):
        if any(Path(path).glob("*.bin")):
            raise CheckpointError(f"{path}: has no weights as safetensors.{conversion_remedy('safetensors', path)}")
        raise CheckpointError(f"{path}: has no weights as safetensors, the only format that is read. Save the model with save_pretrained.")


def _check_vocabulary(path: str, model: "PreTrainedModel", tokenizer: Tokenizer) -> None:
    rows = embedding_rows(model)
    if rows < len(tokenizer):
        raise CheckpointError(
            f"{path}: the tokenizer has {len(tokenizer):,} tokens, the model only {rows:,} embeddings. "
            "They come from different checkpoints; use the tokenizer that was saved with the model."
        )


def _drop_idle_settings(model: "PreTrainedModel") -> None:
    """Remove settings without effect from a generation config, such as Llama 2's `temperature` without `do_sample`: transformers refuses to
    save it after any other change."""
    settings = getattr(model, "generation_config", None)
    try:
        if settings is not None:
            settings.validate(strict=True)
    except ValueError as error:
        for name in _IDLE.findall(str(error)):
            setattr(settings, name, None)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).strip().split("\n")]
    return lines[1] if lines[0].endswith(":") and len(lines) > 1 else lines[0]
