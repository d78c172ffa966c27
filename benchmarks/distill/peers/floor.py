"""The least that a client can do: a loop with a semaphore on aiohttp. It keeps nothing on disk, and repeats requests after status 429."""

import asyncio

import aiohttp


def label(base_url, rows, concurrency, output):
    """The texts of the replies, in the order of the rows; None for a row that was refused."""
    return asyncio.run(_label(base_url, rows, concurrency))


async def _label(base_url, rows, concurrency):
    places = asyncio.Semaphore(concurrency)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        return await asyncio.gather(*(_reply(session, places, base_url, row["prompt"]) for row in rows))


async def _reply(session, places, base_url, prompt):
    body = {"model": "mock", "messages": [{"role": "user", "content": prompt}], "temperature": 0.0}
    while True:
        async with places, session.post(f"{base_url}/chat/completions", json=body) as response:
            if response.status == 200:
                return (await response.json())["choices"][0]["message"]["content"]
            if response.status != 429:
                return None
        await asyncio.sleep(float(response.headers.get("Retry-After", 1)))
