"""`refinery serve` as a process: how it ends, and what it refuses to start with."""

import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
import yaml
from helpers.chat_client import KEY, ask, wait_for
from helpers.unservable import UNSERVABLE

from refinery.cli import main

SLOW = """
import asyncio
from pathlib import Path
from infer.decoders.base import Decoder
from refinery.runtime.recipe import Recipe

async def decode(question, tools, options):
    Path(__file__).with_name("asked").touch()
    await asyncio.sleep(1.5)
    return tools.prediction("late " + question.text)

decoder = Decoder(decode, Recipe)
"""


@pytest.fixture
def process(tmp_path):
    """`refinery serve` of a slow decoder as a process, and its address; nothing is loaded, since its endpoint is never asked."""
    (tmp_path / "slow.py").write_text(SLOW)
    recipe = {"decoder": "slow:decoder", "name": "slow", "questions": ["q"], "output_dir": str(tmp_path / "run")}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe | {"endpoint": {"base_url": "http://127.0.0.1:9/v1", "model": "m"}}))
    command = [
        sys.executable,
        "-m",
        "refinery.cli",
        "serve",
        str(tmp_path / "recipe.yaml"),
        "--port",
        "0",
        "--api-key-env",
        "A_KEY",
    ]
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "A_KEY": KEY, "OPENAI_API_KEY": "unused"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as started:
        line = started.stdout.readline()
        assert line.startswith("slow at http://127.0.0.1:"), started.stderr.read()
        yield started, line.split()[-1]
        started.kill()


def test_sigterm_lets_a_question_in_flight_be_answered_and_ends_cleanly(process, tmp_path):
    started, url = process
    client = openai.OpenAI(base_url=url, api_key=KEY, max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="another").models.list()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, client, "Who?", model="slow")
        wait_for((tmp_path / "asked").exists)
        started.send_signal(signal.SIGTERM)
        assert asked.result().choices[0].message.content == "late Who?"
    output, errors = started.communicate(timeout=30)
    assert started.returncode == 0
    assert KEY not in output + errors
    with pytest.raises(openai.APIConnectionError):
        client.models.list()


@pytest.mark.parametrize(("arguments", "message"), UNSERVABLE)
def test_what_cannot_be_served_is_one_line(tmp_path, capsys, arguments, message):
    (tmp_path / "r.yaml").write_text(
        yaml.safe_dump({"decoder": "direct", "questions": ["q"], "output_dir": "run", "llm": {"base": "none"}})
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        arguments = [str(taken.getsockname()[1]) if argument == "taken" else argument for argument in arguments]
        assert main(["serve", str(tmp_path / "r.yaml"), *arguments]) == 2
    assert message in capsys.readouterr().err
