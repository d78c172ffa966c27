"""`refinery serve RECIPE`."""

import argparse

GROUP = "Models"
HELP = "put a decoder behind an OpenAI-compatible /v1/chat/completions"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("recipe", metavar="RECIPE", help="a decoder, its model and retriever, as an infer recipe has them")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="overrides of the recipe; dots reach into parts")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only); another needs a key")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one (default: 8000)")
    parser.add_argument("--api-key-env", metavar="NAME", help="environment variable with the key that clients have to send")
    parser.add_argument("--timeout-seconds", type=float, default=600.0, help="of one question (default: 600)")


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
