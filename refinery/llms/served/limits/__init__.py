"""Limits on the rate and concurrency of requests to a server."""
