"""`refinery serve RECIPE`."""

import argparse

GROUP = "Models"
HELP = "serve a decoder as an OpenAI-compatible /v1/chat/completions endpoint"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("recipe", metavar="RECIPE", help="an infer recipe: the decoder, its models and its retriever")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="overrides of recipe keys; write nested keys with dots")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only); another needs a key")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on; 0 chooses a free one (default: 8000)")
    parser.add_argument("--api-key-env", metavar="NAME", help="environment variable that holds the key clients must send")
    parser.add_argument("--timeout-seconds", type=float, default=600.0, help="time limit for one question (default: 600)")


def run(arguments: argparse.Namespace) -> None:
    """Serve until stopped."""
    from infer.recipe import load_pipeline_recipe
    from refinery.errors import RecipeError

    recipe = load_pipeline_recipe(arguments.recipe, arguments.overrides)
    try:
        from infer.serving.serve import serve
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise RecipeError(f"serving needs {error.name}. Install it: pip install 'rag-refinery[serve]'") from None
    serve(
        recipe,
        host=arguments.host,
        port=arguments.port,
        api_key_env=arguments.api_key_env,
        timeout_seconds=arguments.timeout_seconds,
    )
