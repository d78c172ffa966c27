"""Titles, tags and follow-ups that chat interfaces ask for are not searched."""

import json

import openai
import pytest
from helpers.chat_client import ask

from infer.serving.housekeeping import task_of
from infer.serving.messages import Message
from refinery.llms.fake import FakeLLM, FakeTokenizer

HISTORY = "### Chat History:\n<chat_history>\nUSER: Who made Cedar Falls, the film about a town?\nASSISTANT: Cleo Marn\n</chat_history>"
# Open WebUI 0.6 and 0.12
TITLE = f'### Task:\nGenerate a concise, 3-5 word title with an emoji.\n### Output:\nJSON format: {{ "title": "..." }}\n{HISTORY}'
NEW_TITLE = f'### Task:\nGenerate a concise title summarizing the chat history.\n### Output:\nJSON format: {{ "title": "..." }}\n{HISTORY}'
TAGS = f'### Task:\nGenerate 1-3 broad tags.\n### Output:\nJSON format: {{ "tags": ["tag1"] }}\n\n{HISTORY}'
FOLLOW_UPS = (
    f'### Task:\nSuggest 3-5 relevant follow-up questions.\n### Output:\nJSON format: {{ "follow_ups": ["Question 1?"] }}\n{HISTORY}'
)
NEW_FOLLOW_UPS = (
    f'### Task:\nPredict 3-5 useful messages this user might send.\n### Output:\nJSON format: {{ "follow_ups": [] }}\n{HISTORY}'
)
COMPLETE = f'### Task:\nYou are an autocompletion system.\n5. If unsure, return: `{{ "text": "" }}`.\n{HISTORY}\n<text>Who</text>'
QUERIES = f'### Task:\nAnalyze the chat history to determine the necessity of search queries.\n{{\n  "queries": ["query1"]\n}}\n{HISTORY}'
COMPACT = "### Task:\nSummarize the conversation history that will be compacted out of the active chat context.\n\nUSER: Who made Elm?"
LIBRECHAT = "Provide a concise, 5-word-or-less title for the conversation, in title case.\n\nConversation:\nUser: Who made Elm?\nAI: Eve"
CHATBOX = "Based on the chat history, give this conversation a name.\n\n```\nWho made Elm?\n\n---------\n\nEve\n```\n\nThe name is:"
NEXTCHAT = "Please generate a four to five word title summarizing our conversation without any lead-in, punctuation or quotation marks."
SUMMARY = "Summarize the discussion briefly in 200 words or less to use as a prompt for future context."
CEDAR_FALLS = '{"title": "Who made Cedar Falls, the film about a"}'
DIALOGUE = [{"role": "user", "content": "Who made Elm?"}, {"role": "assistant", "content": "Eve Lark"}]
TITLING = {"role": "system", "content": "You are a chat thread titling assistant.\nGoal: Produce a very short, descriptive title."}


def user(text):
    return [{"role": "user", "content": text}]


@pytest.fixture
def chatty(pipeline):
    """The pipeline over a model with a chat template, which writes a title whatever it is asked."""
    pipeline.llm.tokenizer.chat_template = "{{ messages }}"
    pipeline.llm.script = lambda text: '{"title": "A Film Maker"}'
    return pipeline


@pytest.mark.parametrize(
    "messages", list(map(user, (TITLE, NEW_TITLE, TAGS, FOLLOW_UPS, NEW_FOLLOW_UPS, COMPLETE, QUERIES, COMPACT, LIBRECHAT)))
)
def test_a_model_that_chats_does_it_without_a_search(chatty, served, messages):
    reply = ask(served(chatty), messages=messages)
    assert reply.choices[0].message.content == '{"title": "A Film Maker"}'
    assert [step["name"] for step in reply.refinery["trace"]] == ["housekeeping"]
    assert reply.refinery["cost"]["retrievals"] == 0
    assert messages[0]["content"] in chatty.llm.texts("generate")[0]


def test_the_model_reads_the_conversation_that_comes_as_messages(chatty, served):
    ask(served(chatty), messages=[*DIALOGUE, *user(NEXTCHAT)])
    assert chatty.llm.texts("generate") == [f"User: Who made Elm?\nAssistant: Eve Lark\n{NEXTCHAT}"]


@pytest.mark.parametrize(
    ("messages", "reply"),
    [
        (user(TITLE), CEDAR_FALLS),
        (user(NEW_TITLE), CEDAR_FALLS),
        (user(TAGS), '{"tags": ["General"]}'),
        (user(FOLLOW_UPS), '{"follow_ups": []}'),
        (user(NEW_FOLLOW_UPS), '{"follow_ups": []}'),
        (user(COMPLETE), '{"text": ""}'),
        (user(QUERIES), '{"queries": []}'),
        (user(COMPACT), "Who made Elm?"),
        (user(LIBRECHAT), "Who made Elm?"),
        (user(CHATBOX), "Who made Elm?"),
        ([*DIALOGUE, *user(NEXTCHAT)], "Who made Elm?"),
        ([*DIALOGUE, {"role": "system", "content": SUMMARY}], "Who made Elm?"),
        ([TITLING, *user('User message: "Who made Elm?"')], "Who made Elm?"),
        (user(NEXTCHAT), "New chat"),
    ],
)
def test_a_model_that_does_not_chat_gives_an_extract(pipeline, served, messages, reply):
    answered = ask(served(pipeline), messages=messages)
    assert answered.choices[0].message.content == reply
    assert pipeline.llm.calls == []


def test_an_extract_in_json_is_json_whatever_was_asked(pipeline, served):
    asked = TITLE.replace("Who made", 'Who "made" \\')
    assert json.loads(ask(served(pipeline), messages=user(asked)).choices[0].message.content)["title"].startswith('Who "made" \\')


@pytest.mark.parametrize(
    ("asked", "said", "reply"),
    [
        (LIBRECHAT, "", "Who made Elm?"),
        *((TITLE, said, CEDAR_FALLS) for said in ('{"title":"..."}', "A Film Maker", '{"title": "A Film', "[1]")),
    ],
)
def test_a_reply_that_is_empty_or_no_json_or_the_prompts_example_is_an_extract(chatty, served, asked, said, reply):
    chatty.llm.script = lambda text: said
    assert ask(served(chatty), messages=user(asked)).choices[0].message.content == reply


def test_a_streamed_title_has_no_steps(chatty, served):
    chunks = list(ask(served(chatty), messages=user(TITLE), stream=True))
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["", '{"title": "A Film Maker"}', None]


@pytest.mark.parametrize(
    "text",
    [
        "Generate 1-3 broad tags",
        "### Task:\nGenerate a concise, 3-5 word title",  # nothing is quoted
        '### Task:\nRespond to the user query using the context.\n<context>{ "title": "Elm" }</context>\nWho?',  # its documents
        "### Task:\nWho wrote <chat_history>?",
        f"What does '{TITLE}' mean?",
        "Who wrote: Provide a concise, 5-word-or-less title for the conversation?",
    ],
)
def test_a_question_that_resembles_one_is_a_question(text):
    assert task_of([Message(role="user", content=text)]) is None


def test_without_housekeeping_it_is_a_question(pipeline, served):
    pipeline.llm.script = lambda text: "Cleo Marn"
    reply = ask(served(pipeline, housekeeping=False), messages=user(TITLE))
    assert "retrieve" in [step["name"] for step in reply.refinery["trace"]]


def test_another_system_message_at_the_end_is_refused(pipeline, served):
    with pytest.raises(openai.BadRequestError, match="must be from the user"):
        ask(served(pipeline), messages=[*DIALOGUE, {"role": "system", "content": "Summarize."}])


def test_a_long_chat_fits_a_short_context(chatty, served):
    class Short(FakeLLM):
        context_limit = 400
        token_counter = FakeTokenizer()

    chatty.llm = Short(chatty.llm.script, tokenizer=chatty.llm.tokenizer)
    long = [{"role": role, "content": "so " * 999} for role in ("user", "assistant") * 30]
    assert ask(served(chatty), messages=[*long, *user(f"{TITLE} {'so ' * 999}")]).choices[0].message.content
    assert len(chatty.llm.texts("generate")[0].split()) < 300
