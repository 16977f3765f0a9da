"""``localspec serve``: a model behind an HTTP address, in the shapes of OpenAI's API."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.cli import interface
from localspec.cli.flags import (
    LOADING,
    SharedFlags,
    chosen_preset,
    flags_of,
    given,
    model_argument,
    preset_flag,
    sampling_flags,
    sort_flags,
    with_jobs,
)
from localspec.cli.output import in_terminal, say, tell
from localspec.core import settings_schema as schema
from localspec.core.errors import UsageError
from localspec.core.files import defects, paths
from localspec.core.files.private import without_secrets
from localspec.remote.keys import OWN as KEY_VARIABLE
from localspec.serve.http.settings import require_key_for

if TYPE_CHECKING:
    from localspec.serve.backend.service import Service
    from localspec.serve.http.settings import ServeSettings

_LARGEST_KEY_FILE = 1 << 16
_ROOT_PATH = re.compile(r"(?:/[A-Za-z0-9._~-]+)+")


@click.command("serve")
@model_argument
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="Port to listen at; 0 = a free one.",
)
@click.option(
    "--unix", metavar="PATH", help="Listen at a Unix socket instead, which only you can open."
)
@click.option(
    "--api-key",
    "api_keys",
    multiple=True,
    metavar="KEY",
    help=f"Require this key from clients; may be repeated. Also from {KEY_VARIABLE}.",
)
@click.option(
    "--api-key-file", metavar="FILE", help="Require one of the keys of this file, one a line."
)
@click.option(
    "--alias",
    "aliases",
    multiple=True,
    metavar="NAME",
    help="Accept this name for the model too; * accepts all. May be repeated.",
)
@click.option(
    "--keep-alive",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Unload the model after that long without a request; the next request loads it again.",
)
@click.option("--lazy", is_flag=True, help="Load the model with the first request.")
@click.option("--no-switch", is_flag=True, help="Serve this model alone, whatever is downloaded.")
@click.option("--no-pull", is_flag=True, help="Refuse requests to download a model (/api/pull).")
@click.option(
    "--allow-delete",
    is_flag=True,
    help="Let clients remove downloaded models (/api/delete).",
)
@click.option(
    "--queue",
    type=click.IntRange(0, 10_000),
    default=128,
    show_default=True,
    help="Requests that may wait; further ones get status 429.",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Name by which clients may call this machine (Host header); may be repeated.",
)
@click.option(
    "--cors-origin",
    "origins",
    multiple=True,
    metavar="ORIGIN",
    help="Let web pages of this origin use the server, '*': of any; may be repeated.",
)
@click.option(
    "--allow-media",
    multiple=True,
    metavar="PLACE",
    help="Fetch pictures that requests name from this server (https://HOST) or folder; may be "
    "repeated.",
)
@click.option(
    "--models",
    type=click.IntRange(1, 16),
    default=1,
    show_default=True,
    metavar="N",
    help="Models loaded side by side where the memory has room, else one in place of another.",
)
@click.option(
    "--save-states",
    is_flag=True,
    help="Keep states of long prompts, and so their text, on disk for the next start.",
)
@click.option("--embedding", metavar="MODEL", help="Embedding model beside it, for /v1/embeddings.")
@click.option("--reranker", metavar="MODEL", help="Reranker beside it, for /v1/rerank.")
@click.option(
    "--lora-folder",
    "lora_folders",
    multiple=True,
    metavar="FOLDER",
    help="Let clients load LoRA adapters of this folder; may be repeated.",
)
@click.option(
    "--spm-infill",
    is_flag=True,
    help="Give models that fill in text the part behind the cursor first, as Codestral has it.",
)
@click.option(
    "--drain",
    type=click.FloatRange(0, 86_400),
    default=4.0,
    show_default=True,
    metavar="SECONDS",
    help="Time that running replies have to end when the server stops.",
)
@click.option("--tls-cert", metavar="FILE", help="Serve HTTPS with this certificate (PEM).")
@click.option("--tls-key", metavar="FILE", help="The key of the certificate (PEM).")
@click.option(
    "--root-path",
    default="",
    metavar="/PATH",
    help="Path in front of all others, where a proxy passes it on.",
)
@click.option("--tui", is_flag=True, help="Show running requests and speeds over time.")
@preset_flag
@flags_of(LOADING, jobs="what fits")
@sampling_flags
def command(model: str | None, **flags: Any) -> int:
    """Serve MODEL over HTTP, for clients of OpenAI's API.

    Exit code 130 after Ctrl-C, 143 after SIGTERM; running replies may end first.
    """
    own = {name: flags.pop(name) for name in [*flags] if name not in schema.BY_NAME}
    asked = sort_flags(model, flags)
    if asked.seed is not None:
        raise UsageError("serve takes no --seed: each request brings its own")
    _tell_of_the_unused(own["unix"])
    options = with_jobs(asked.options, schema.SPARE_JOBS)
    options = dataclasses.replace(options, save_states=own["save_states"])
    settings = _settings(own, asked)

    from localspec.serve.serving import Front, Serving

    def make(front: Front) -> Serving:
        return Serving(settings, options, front)

    if own["tui"]:
        if not in_terminal():
            raise UsageError("--tui needs a terminal; leave it out to have the log as lines")
        view = interface.module("serve_view")
        code: int = view.run(make)
        return code
    return asyncio.run(make(Terminal()).run())


def _tell_of_the_unused(unix: str | None) -> None:
    """Name what was given and has no effect."""
    preset = chosen_preset()
    if preset is not None and preset.system is not None:
        tell(f"the system message of preset {preset.name} is not used: each request brings its own")
    if unix is not None:
        for name in filter(given, ("host", "port")):
            tell(f"--{name} has no effect beside --unix, which is listened at instead")


def _settings(own: dict[str, Any], asked: SharedFlags) -> ServeSettings:
    """The settings of the flags.

    Raises:
        UsageError: an address of others without a key, or keys that cannot be read.
    """
    from localspec.serve.http.settings import ApiKeys, Limits, ServeSettings

    keys = ApiKeys(_keys(own["api_keys"], own["api_key_file"]))
    unix = own["unix"]
    if unix is None and not keys:
        require_key_for(own["host"])
    return ServeSettings(
        host=own["host"],
        port=own["port"],
        unix=None if unix is None else paths.expand(unix).absolute(),
        keys=keys,
        hosts=own["hosts"],
        origins=own["origins"],
        aliases=own["aliases"],
        sampling=asked.sampling,
        max_tokens=asked.max_tokens,
        limits=Limits(waiting=own["queue"]),
        keep_loaded=own["keep_alive"],
        load_first=not own["lazy"],
        switch=not own["no_switch"],
        lora_folders=_folders(own["lora_folders"]),
        suffix_first=own["spm_infill"],
        embedding=own["embedding"],
        reranker=own["reranker"],
        pulls=not own["no_pull"],
        deletes=own["allow_delete"],
        media=own["allow_media"],
        models=own["models"],
        drain_seconds=own["drain"],
        tls=_tls(own["tls_cert"], own["tls_key"]),
        root_path=_root_path(own["root_path"]),
    )


def _tls(certificate: str | None, key: str | None) -> tuple[Path, Path] | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise UsageError("--tls-cert and --tls-key belong together; give both")
    return paths.expand(certificate).absolute(), paths.expand(key).absolute()


def _folders(given: tuple[str, ...]) -> tuple[Path, ...]:
    found = tuple(paths.expand(folder).absolute() for folder in given)
    for folder in found:
        if not folder.is_dir():
            raise UsageError(f"--lora-folder needs a folder, and {folder} is none")
    return found


def _root_path(given: str) -> str:
    path = given.rstrip("/")
    if path and not _ROOT_PATH.fullmatch(path):
        raise UsageError(f"--root-path is a path such as /llm, not {given!r}")
    return path


def _keys(given: tuple[str, ...], file: str | None) -> tuple[str, ...]:
    found = [*given]
    if file is not None:
        found += _keys_of(paths.expand(file))
    variable = os.environ.get(KEY_VARIABLE, "")
    if variable and not found:
        found.append(variable)
    return tuple(found)


def _keys_of(file: Path) -> list[str]:
    """The keys of a file, one a line; lines that begin with # are comments.

    Raises:
        UsageError: it cannot be read, or has none.
    """
    try:
        with file.open("rb") as opened:
            text = opened.read(_LARGEST_KEY_FILE).decode()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not a text file") from None
    lines = [line.strip() for line in text.splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise UsageError(f"{file} has no API key; write one on a line")
    return keys


class Terminal:
    """Prints what the server tells on stderr; where that is closed, the server goes on."""

    def line(self, text: str) -> None:
        """One line about a request."""
        with contextlib.suppress(OSError):
            say(text, dim=sys.stderr.isatty())

    def notice(self, text: str) -> None:
        """Something that the user should know."""
        with contextlib.suppress(OSError):
            tell(without_secrets(text))

    def defect(self, error: BaseException) -> None:
        """A fault of localspec."""
        self.notice(defects.report(error))

    def ready(self, service: Service, address: str) -> None:
        """Print the address and how to use it."""
        from localspec.serve.serving import banner

        info = service.slots.info
        for notice in info.notices if info is not None else ():
            self.notice(notice)
        with contextlib.suppress(OSError):
            for line in banner(service, address, quote=shlex.quote):
                say(line)
