"""``localspec worker``: lend this machine's devices to others."""

from __future__ import annotations

import getpass
import ipaddress
import signal
import socket
from pathlib import Path
from typing import Any

import click

from localspec.cli.flags import setting_option
from localspec.cli.output import say, tell
from localspec.core import settings_schema as schema
from localspec.core.endpoint import DEFAULT_PORT, Endpoint
from localspec.core.errors import UsageError
from localspec.core.files import paths
from localspec.core.units import size_text


@click.command("worker")
@click.option(
    "--bind",
    metavar="HOST:PORT",
    default=f"127.0.0.1:{DEFAULT_PORT}",
    show_default=True,
    help="Address to listen at; port 0 is any that is free.",
)
@click.option(
    "--i-trust-this-network",
    "trusted",
    is_flag=True,
    help="Allow an address that other machines reach. Whoever reaches it can run code here.",
)
@click.option(
    "--source",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Folder or archive of llama-cpp-python's source, to compile the plugin from.",
)
@click.option("--cache", is_flag=True, help="Keep weights that were sent, on disk, for next time.")
@setting_option(schema.THREADS, sources=False, default=None)
@setting_option(schema.OFFLINE)
def command(
    bind: str,
    source: Path | None,
    *,
    trusted: bool,
    cache: bool,
    threads: int | None,
    offline: bool,
) -> int:
    """Serve this machine's devices by llama.cpp's RPC, until Ctrl-C.

    Another machine uses them with --rpc HOST:PORT on chat, run, serve, verify, bench and tune. One
    client at a time. The protocol has neither passwords nor encryption, so the address is this
    machine's own; others reach it through SSH:

      ssh -N -L 50052:127.0.0.1:50052 USER@THIS-MACHINE
    """
    from localspec.llama.devices import physical_cores
    from localspec.llama.rpc import plugin
    from localspec.llama.rpc.serving import Serving, free_port
    from localspec.loading.soundness import required
    from localspec.models.catalog.links import is_offline
    from localspec.models.memory.ask_machine import memory

    endpoint = _address(bind, trusted=trusted)
    port = free_port(endpoint.host, endpoint.port)
    endpoint = Endpoint(endpoint.host, port)
    made = plugin.obtain(source, offline=offline or is_offline(), on_start=lambda: tell(COMPILING))
    required(on_start=lambda: tell("llama.cpp is checked, once on this processor"))
    folder = paths.make(paths.cache_dir() / "rpc-weights") if cache else None
    found = memory()
    cores = threads if threads is not None else physical_cores()  # no model is known yet
    serving = Serving(made.path, endpoint, cores, folder, tell)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        worker = serving.start()
        used = [f"{gpu.name}, {gpu.description}" for gpu in found.gpus if gpu.total]  # not full
        used = used or [f"the processor, {cores} threads"]
        for device, name in zip(worker.devices, used, strict=False):
            say(f"{name}: {size_text(device.free)} of {size_text(device.total)} free")
        tell(f"worker at {endpoint} (RPC {made.version}), one client at a time; Ctrl-C ends it")
        _explain(endpoint)
        serving.run()
    except KeyboardInterrupt:
        say()
        tell("the worker has ended")
        return 130
    finally:
        serving.stop()
    return 0


COMPILING = "the plugin for other machines is compiled, once; that takes some seconds"


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _address(text: str, *, trusted: bool) -> Endpoint:
    """The address to listen at, numeric.

    Raises:
        UsageError: it is none, or others reach it and that was not allowed.
    """
    host, _, port = text.rpartition(":") if ":" in text else (text, "", str(DEFAULT_PORT))
    if port == "0":
        found = Endpoint(Endpoint.parse(f"{host}:1").resolved().host, 0)
    else:
        found = Endpoint.parse(f"{host}:{port}").resolved()
    if not ipaddress.ip_address(found.host).is_loopback and not trusted:
        raise UsageError(
            f"whoever reaches {found.host}:{port} could run code on this machine: llama.cpp's RPC "
            "has no protection. Leave out --bind and use an SSH tunnel, or add "
            "--i-trust-this-network"
        )
    return found


def _explain(endpoint: Endpoint) -> None:
    """How other machines reach it."""
    port = endpoint.port
    if ipaddress.ip_address(endpoint.host).is_loopback:
        say("from another machine, first:")
        try:
            user = getpass.getuser()
        except (KeyError, OSError):  # a user of a container that its system does not know
            user = "USER"
        say(f"  ssh -N -L {port}:127.0.0.1:{port} {user}@{socket.gethostname()}")
        say(f"and then there: localspec chat --rpc 127.0.0.1:{port}")
        return
    tell("whoever reaches this address can run code here; end the worker when it is not needed")
    name = socket.gethostname() if endpoint.host == "0.0.0.0" else endpoint.host  # noqa: S104 - compared only
    say(f"on another machine: localspec chat --rpc {name}:{port}")
