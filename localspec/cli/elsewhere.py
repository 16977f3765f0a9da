"""The flags for engines elsewhere, ``--url`` and ``--connect``, and the client they mean."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from localspec.cli.flags import LOADING
from localspec.cli.output import confirm
from localspec.cli.working import open_runtime
from localspec.config import running_servers
from localspec.core.errors import AccessError, ModelNotFoundError, UsageError
from localspec.core.interrupt import Cancelled
from localspec.core.sampling_params import Sampling

if TYPE_CHECKING:
    from localspec.config.running_servers import RunningServer
    from localspec.core.options import Options
    from localspec.remote.address import Address
    from localspec.remote.blocking import BlockingClient
    from localspec.remote.client import RemoteClient
    from localspec.remote.connected import ConnectedClient
    from localspec.remote.keys import Key
    from localspec.runtime import Runtime

AUTO = "auto"

url_flag = click.option(
    "--url",
    metavar="URL",
    help="Ask an OpenAI-compatible server, as http://127.0.0.1:8080/v1; MODEL (run: -m) names its "
    "model.",
)
plain_url_flag = click.option(
    "--plain-url",
    metavar="URL",
    help="With --url: a server of the same model without speculation, to compare with.",
)
connect_flag = click.option(
    "--connect",
    metavar="URL|auto",
    help="Use a running `localspec serve`; auto finds one of yours on this machine.",
)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A server that answers in place of a model of this machine."""

    address: Address
    key: Key
    model: str | None
    sampling: Sampling
    ours: bool = False
    """Whether it is asked as `localspec serve`, with all figures, and not as any server."""

    @property
    def name(self) -> str:
        """The model, for a title."""
        return self.model or str(self.address)

    def client(self) -> RemoteClient | ConnectedClient:
        """A client that has asked nothing yet."""
        if self.ours:
            from localspec.remote.connected import ConnectedClient

            return ConnectedClient(self.address, self.key)
        return self.as_any()

    def as_any(self) -> RemoteClient:
        """A client of its OpenAI interface."""
        from localspec.remote.client import RemoteClient

        return RemoteClient(self.address, self.key, model=self.model, sampling=self.sampling)


@dataclass(frozen=True, slots=True)
class Servers:
    """The server of ``--url``, and that of ``--plain-url`` to compare it with."""

    url: str
    plain_url: str | None
    model: str | None

    @classmethod
    def named(cls, url: str | None, plain_url: str | None, model: str | None) -> Servers | None:
        """The servers that the flags name; None without any.

        Raises:
            UsageError: the plain one alone.
        """
        if url is None and plain_url is not None:
            raise UsageError("--plain-url is what --url is compared with; give that too")
        return None if url is None else cls(url, plain_url, model)

    @contextlib.contextmanager
    def connected(
        self, cancelled: Cancelled, sampling: Sampling | None = None
    ) -> Iterator[tuple[BlockingClient[RemoteClient], BlockingClient[RemoteClient] | None]]:
        """Both, connected.

        Raises:
            UsageError: no address or key, or the plain server speculates.
            LocalspecError: one of them does not answer.
        """
        from localspec.remote.blocking import BlockingClient

        model, found = self.model, []
        with contextlib.ExitStack() as stack:
            for text in (self.url, self.plain_url):
                if text is None:
                    continue
                server = chosen(text, model, sampling or Sampling())
                assert server is not None
                found.append(stack.enter_context(BlockingClient(server.as_any(), cancelled)))
                model = model if found[-1].client.found is None else found[-1].client.found.model
            plain = found[1] if len(found) > 1 else None
            if plain is not None and plain.info.speculation.state == "on":
                raise UsageError(
                    f"{self.plain_url} speculates itself; start it without, to compare with it"
                )
            yield found[0], plain


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


def connected(connect: str | None, model: str | None, sampling: Sampling) -> Elsewhere | None:
    """The `localspec serve` that ``--connect`` names; None without it.

    Raises:
        UsageError: no address, no key, or a flag that only a model of this machine knows.
        ModelNotFoundError: ``auto``, and no server of this user runs.
        AccessError: the key ring gives no key.
    """
    if connect is None:
        return None
    require_no_loading(connect)
    if model is not None:
        raise UsageError(f"{model} is not loaded with --connect: the server has its model")
    if connect == AUTO:
        return _found(sampling)
    from localspec.remote import keys
    from localspec.remote.address import parse

    address = parse(connect, path="")
    return Elsewhere(address, keys.find(address), None, sampling, ours=True)


def offered(options: Options, sampling: Sampling) -> Elsewhere | None:
    """A server of this user that has the same model loaded, if the user accepts it; None otherwise.

    The user is asked only where no setting of loading was given.
    """
    from localspec.models.catalog.portable import portable

    if _loading_flag() is not None:
        return None
    names = {portable(options.model)}
    same = [s for s in running_servers.running() if names & {s.model, s.target}]
    try:
        server = next(_answering(same, sampling), None)
    except (AccessError, UsageError):  # keys are for servers; here the user asked for none
        return None
    if server is None:
        return None
    question = (
        f"a server of yours at {server.address} has {options.model} loaded; use it instead of "
        "loading it twice?"
    )
    return server if confirm(question, default=True) else None


def _found(sampling: Sampling) -> Elsewhere:
    """The newest server of this user that lets us in.

    Raises:
        AccessError: there is one, and it requires another key, or the key ring gives none.
        ModelNotFoundError: there is none.
    """
    running = running_servers.running()
    if alive := next(_answering(running, sampling), None):
        return alive
    for server in running:
        if server.key:
            raise AccessError(
                f"your server at {server.address} requires its key; set LOCALSPEC_API_KEY"
            )
    raise ModelNotFoundError("no server of yours runs here; start one: localspec serve")


def _answering(servers: Sequence[RunningServer], sampling: Sampling) -> Iterator[Elsewhere]:
    """The servers that answer this user, each with the key that it let us in with. One that
    requires none gets none, and the key ring is asked once.

    Raises:
        UsageError: no key.
        AccessError: the key ring gives none.
    """
    if not servers:
        return  # most often so, and an HTTP client takes long to import
    from localspec.remote import keys
    from localspec.remote.address import parse
    from localspec.remote.probe import answers

    known: dict[bool, Key] = {}
    for server in servers:
        address, key = parse(server.address, path=""), keys.Key()
        if server.key:
            if address.encrypted not in known:  # on which it depends
                known[address.encrypted] = keys.find(address)
            key = known[address.encrypted]
        if answers(address, key):
            yield Elsewhere(address, key, None, sampling, ours=True)


def opened(
    options: Options,
    server: Elsewhere | None,
    cancelled: Cancelled,
    *,
    share: bool = True,
) -> Runtime | BlockingClient[RemoteClient | ConnectedClient]:
    """The runtime or client that answers: a model that is loaded here, or a server. ``share``: see
    `open_runtime`.

    Raises:
        LocalspecError: it cannot be opened.
    """
    if server is not None:
        from localspec.remote.blocking import BlockingClient

        return BlockingClient(server.client(), cancelled)
    return open_runtime(options, cancelled, share=share)


def require_no_loading(url: str) -> None:
    """Refuse flags that say how a model is loaded.

    Raises:
        UsageError: one was given.
    """
    if flag := _loading_flag():
        raise UsageError(f"{flag} is for a model that is loaded here; {url} decides that itself")


def _loading_flag() -> str | None:
    """A flag that says how a model is loaded, if the user gave one."""
    source = click.get_current_context().get_parameter_source
    given = (spec for spec in LOADING if source(spec.name) is ParameterSource.COMMANDLINE)
    return next((spec.flag for spec in given), None)
