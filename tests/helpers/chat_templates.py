"""The chat templates of real families, by the kind of their tokenizer (tests/helpers/tokenizer_kinds.py)."""

from typing import Any

from helpers.tokenizer_kinds import KINDS

LLAMA_3 = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}"
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' %}"
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
LLAMA_3_2 = LLAMA_3.replace("{% set loop_messages", "{{ 'Today Date: ' + strftime_now('%d %b %Y') + '\n' }}{% set loop_messages")
QWEN_3 = (
    "{%- if messages[0].role == 'system' %}{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}{%- endif %}"
    "{%- for message in messages %}{%- if message.role == 'user' %}{{- '<|im_start|>user\n' + message.content + '<|im_end|>\n' }}"
    "{%- elif message.role == 'assistant' %}{%- set content = message.content.split('</think>')[-1].lstrip('\n') %}"
    "{{- '<|im_start|>assistant\n' + content + '<|im_end|>\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}{%- endif %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if message['role'] == 'assistant' %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' ' + message['content'] + eos_token }}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"
)
CHATML = (  # SmolLM2's and Qwen2.5's, each with a system message of its own where there is none
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_TURNS = (
    "{%- for m in messages -%}{%- if m.role == 'assistant' -%}{{- 'ASSISTANT' + m.content + 'END' }}{%- else -%}{{- 'USER' + m.content }}"
    "{%- endif -%}{%- endfor -%}{%- if add_generation_prompt -%}{{- 'ASK' }}{%- endif -%}"
)


def _template(user: str, assistant: str, end: str, ask: str) -> str:
    return _TURNS.replace("USER", user).replace("ASSISTANT", assistant).replace("END", end).replace("ASK", ask)


# Templates that write something between the generation prompt and a reply, or around it: what they write, and whether the model reasons.
_GPT_OSS_ASK = "<|start|>assistant"
BETWEEN = {
    "gpt_oss": _template("<|start|>user<|message|>", f"{_GPT_OSS_ASK}<|channel|>final<|message|>", "<|return|>", _GPT_OSS_ASK),
    "glm_4_5": _template("<|user|>\n", "<|assistant|>\n<think></think>\n", "<|return|>", "<|assistant|>\n<think></think>"),
    "qwen_3_thinking": _template("<|start|>", "<|end|>\n<think>\n\n</think>\n\n", "<|return|>", "<|end|>\n<think>\n"),
    "vicuna": _template("USER: ", " ASSISTANT: ", "<|return|>", " ASSISTANT:"),
    "llama_2_chat": _template("[INST] ", " [/INST] ", " <|return|>", " [/INST]"),
}
DEEPSEEK_R1 = _template("<|user|>", "<|assistant|>", "<|return|>", "<|assistant|><think>\n")
NEITHER = _template("<|user|>", "<|assistant|>Answer: ", "<|return|>", "<|assistant|>Reply: ")
# Each: its tokenizer's kind, its template, and the token that ends the assistant's turn.
FAMILIES = {
    "llama_3": ("llama_3", LLAMA_3, "<|eot_id|>"),
    "llama_3_2": ("llama_3", LLAMA_3_2, "<|eot_id|>"),
    "qwen_2_5": ("qwen_3", CHATML, "<|im_end|>"),
    "qwen_3": ("qwen_3", QWEN_3, "<|im_end|>"),
    "gemma": ("gemma", GEMMA, "<end_of_turn>"),
    "mistral": ("mistral", MISTRAL, "</s>"),
    "llama_2": ("llama_2", MISTRAL, "</s>"),
}


def chat_tokenizer(family: str) -> Any:
    """A small tokenizer of the family's kind, with its chat template."""
    kind, template, _ = FAMILIES[family]
    tokenizer = KINDS[kind]()
    tokenizer.chat_template = template
    return tokenizer


def reasoning_tokenizer(template: str) -> Any:
    """A small byte-level tokenizer with the marks of reasoning models among its tokens."""
    tokenizer = KINDS["qwen_3"]()
    names = ("<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|return|>", "<|user|>", "<|assistant|>")
    tokenizer.add_special_tokens({"additional_special_tokens": [*names], "eos_token": "<|return|>"})
    tokenizer.chat_template = template
    return tokenizer
