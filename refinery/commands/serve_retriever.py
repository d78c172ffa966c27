"""`refinery serve-retriever RECIPE`."""

import argparse
from pathlib import Path

GROUP = "Retrieval"
HELP = "serve a retriever over HTTP with Search-R1's /retrieve contract"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("recipe", type=Path, metavar="RECIPE", help="a retriever's recipe, or the folder of an index")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="overrides of the recipe, such as cache=searches.sqlite")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only); any other needs a key")
    parser.add_argument("--port", type=int, default=8081, help="port to listen on; 0 takes a free one (default: 8081)")
    parser.add_argument("--api-key-env", metavar="NAME", help="environment variable with the key that clients must send")
    parser.add_argument("--topk", type=int, default=3, help="hits for a request without topk (default: 3, as in Search-R1)")


def run(arguments: argparse.Namespace) -> None:
    """Serve until interrupted."""
    from aiohttp import web

    from refinery.retrievers.search.build import build_retriever, load_retriever_config
    from refinery.retrievers.search.server import retrieve_app
    from refinery.runtime.http_checks import Guard, listen, url_of
    from refinery.text import printable

    config = load_retriever_config(arguments.recipe, arguments.set)
    guard = Guard.of_server(arguments.host, arguments.api_key_env)
    listener = listen(arguments.host, arguments.port)
    app = retrieve_app(build_retriever(config), topk=arguments.topk, guard=guard)
    web.run_app(app, sock=listener, print=lambda _: print(f"{printable(config.name)} at {url_of(listener)}/retrieve", flush=True))
