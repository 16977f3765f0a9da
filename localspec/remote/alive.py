"""Whether a server answers."""

from __future__ import annotations

import asyncio

from localspec.core.errors import LocalspecError
from localspec.remote.address import Address
from localspec.remote.connection import Connection, Patience
from localspec.remote.keys import Key

_HURRIED = Patience(connect=1.0, question=2.0)


def answers(address: Address, key: Key) -> bool:
    """Whether a `localspec serve` answers there, and lets us in."""
    return asyncio.run(_answers(address, key))


async def _answers(address: Address, key: Key) -> bool:
    connection = Connection(address, key, _HURRIED)
    try:
        data = await connection.ask("/localspec/info")
    except LocalspecError:
        return False
    finally:
        await connection.close()
    return isinstance(data, dict) and "version" in data
