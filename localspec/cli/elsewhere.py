"""The flags for engines elsewhere, ``--url`` and ``--connect``, and the client they mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from localspec.core import settings_schema as schema
from localspec.core.setting_spec import Scope
from localspec.errors import UsageError

if TYPE_CHECKING:
    from localspec.core.sampling_params import Sampling
    from localspec.loading.options import Options
    from localspec.remote.address import Address
    from localspec.remote.blocking import BlockingClient
    from localspec.remote.client import RemoteClient
    from localspec.remote.keys import Key
    from localspec.runtime import Runtime

_Function = TypeVar("_Function", bound=Callable[..., Any])


def url_flag(function: _Function) -> _Function:
    """``--url``."""
    return click.option(
        "--url",
        metavar="URL",
        help="Ask an OpenAI-compatible server, as http://127.0.0.1:8080/v1; -m names its model.",
    )(function)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A server that answers in place of a model of this machine."""

    address: Address
    key: Key
    model: str | None
    sampling: Sampling

    @property
    def name(self) -> str:
        """The model, for a title."""
        return self.model or str(self.address)

    def client(self) -> RemoteClient:
        """A client that has asked nothing yet."""
        from localspec.remote.client import RemoteClient

        return RemoteClient(self.address, self.key, model=self.model, sampling=self.sampling)


def chosen(url: str | None, model: str | None, sampling: Sampling) -> Elsewhere | None:
    """The server that ``--url`` names; None without it.

    Raises:
        UsageError: no address, no key, or a flag that only a model of this machine knows.
        AccessError: the key ring gives no key.
    """
    if url is None:
        return None
    from localspec.remote import keys
    from localspec.remote.address import parse

    require_no_loading(url)
    address = parse(url)
    return Elsewhere(address, keys.find(address), model, sampling)


def opened(
    options: Options, server: Elsewhere | None, cancelled: Callable[[], bool]
) -> Runtime | BlockingClient:
    """What answers: a model that is loaded here, or a server.

    Raises:
        LocalspecError: it cannot be opened.
    """
    if server is not None:
        from localspec.remote.blocking import BlockingClient

        return BlockingClient(server.client(), cancelled)
    from localspec.runtime import Runtime

    return Runtime.open(options, cancelled=cancelled)


def require_no_loading(url: str) -> None:
    """Refuse flags that say how a model is loaded.

    Raises:
        UsageError: one was given.
    """
    context = click.get_current_context()
    for spec in schema.of(Scope.LOAD):
        if spec is schema.MODEL:
            continue
        if context.get_parameter_source(spec.name) is ParameterSource.COMMANDLINE:
            raise UsageError(
                f"{spec.flag} is for a model that is loaded here; {url} decides that itself"
            )


__all__ = ["Elsewhere", "chosen", "opened", "require_no_loading", "url_flag"]
