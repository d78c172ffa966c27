import socket


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
