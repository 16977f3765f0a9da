"""``localspec run``: one reply, streamed."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Iterator
from typing import Any

import click

from localspec.cli.containment import contain
from localspec.cli.flags import (
    chosen_preset,
    model_flags,
    preset_flag,
    sampling_flags,
    setting_option,
    sort_flags,
)
from localspec.cli.grammar_flags import grammar_flags, take_grammar
from localspec.cli.interrupt import CtrlC
from localspec.cli.output import read_stdin, require_text, say, summary, tell, write, write_json
from localspec.core import settings_schema as schema
from localspec.core.events import Finished, Message, ModelInfo, Notice, Reply, ReplyEvent, Token
from localspec.core.reply_request import ReplyRequest
from localspec.errors import UsageError


@click.command("run", context_settings={"ignore_unknown_options": False})
@click.argument("prompts", nargs=-1, metavar="[PROMPT]")
@setting_option(schema.MODEL, sources=False)
@setting_option(schema.SYSTEM, sources=False)
@click.option(
    "--stop", multiple=True, metavar="TEXT", help="End the reply before this text; may be repeated."
)
@click.option(
    "--raw", is_flag=True, help="Continue the prompt as plain text, without the chat template."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.option(
    "--stats", is_flag=True, help="Print statistics on stderr even if it is not a terminal."
)
@grammar_flags
@preset_flag
@model_flags
@sampling_flags
def command(
    prompts: tuple[str, ...],
    model: str | None,
    system: str | None,
    stop: tuple[str, ...],
    *,
    raw: bool,
    as_json: bool,
    stats: bool,
    **flags: Any,
) -> int:
    """Answer PROMPT once. With -, or a pipe and no PROMPT, the prompt is read from stdin."""
    prompt = _only(prompts)
    contain()
    if prompt is None and sys.stdin.isatty():
        raise UsageError("give a prompt: localspec run 'Hello', or - to read stdin")
    text = require_text(read_stdin() if prompt in {None, "-"} else prompt or "")
    grammar = take_grammar(flags)
    asked = sort_flags(model, flags)
    preset = chosen_preset()
    if system is None and preset is not None:
        system = preset.system
    if raw and system is not None:
        raise UsageError("--system needs the chat template, which --raw leaves out")
    with CtrlC() as ctrl_c:
        from localspec.runtime import Runtime

        with Runtime.open(asked.options, cancelled=lambda: ctrl_c.pressed) as runtime:
            for notice in runtime.info.notices:
                tell(notice)
            about = (Message("system", system),) if system is not None else ()
            request = ReplyRequest(
                messages=() if raw else (*about, Message("user", text)),
                prompt=text if raw else None,
                sampling=asked.sampling,
                seed=asked.seed,
                max_tokens=asked.max_tokens,
                stop=tuple(stop),
                grammar=grammar,
            )
            stream = runtime.submit(request)
            ctrl_c.on_first = stream.interrupt
            if ctrl_c.pressed:
                stream.interrupt()
            reply = _follow(stream, show=not as_json)
            info = runtime.info
    if as_json:
        write_json(report(reply, info))
    if stats or (sys.stderr.isatty() and not as_json):
        say(summary(reply.stats), dim=True)
    return 130 if reply.finish_reason == "interrupt" else 0


def _only(prompts: tuple[str, ...]) -> str | None:
    """The one prompt, if any; several words are a prompt without quotes, or a model before it."""
    if len(prompts) < 2:
        return next(iter(prompts), None)
    first, rest = prompts[0], shlex.join([" ".join(prompts[1:])])
    raise UsageError(
        f"run takes one prompt, and there are {len(prompts)}; put it in quotes. The model goes "
        f"with -m: localspec run -m {shlex.quote(first)} {rest}"
    )


def _follow(events: Iterator[ReplyEvent], *, show: bool) -> Reply:
    """Stream a reply to stdout, or only wait for its end."""
    shown = 0
    for event in events:
        if isinstance(event, Token) and show:
            write(event.text)
            shown += len(event.text)
        elif isinstance(event, Notice):
            tell(event.text)
        elif isinstance(event, Finished):
            if show:
                write(event.reply.text[shown:] + "\n")
            return event.reply
    raise AssertionError("a reply ends with Finished")


def report(reply: Reply, info: ModelInfo) -> dict[str, Any]:
    """The object that ``run --json`` prints."""
    s = reply.stats
    return {
        "text": reply.text,
        "tokens": list(reply.tokens),
        "origins": [str(o) for o in reply.origins],
        "finish_reason": reply.finish_reason,
        "stats": {
            "prompt_tokens": s.prompt_tokens,
            "cached_tokens": s.cached_tokens,
            "saved_seconds": s.saved_seconds,
            "emitted": s.emitted,
            "rounds": s.rounds,
            "drafted": s.drafted,
            "verified": s.verified,
            "accepted": s.accepted,
            "acceptance": s.acceptance,
            "tokens_per_round": s.tokens_per_round,
            "per_position": list(s.per_position),
            "by_drafter": {name: dataclasses.asdict(d) for name, d in s.by_drafter.items()},
            "prompt_seconds": s.prompt_seconds,
            "decode_seconds": s.decode_seconds,
            "tokens_per_second": s.tokens_per_second,
            "plain_tokens_per_second": s.plain_tokens_per_second,
            "speculation": {"state": s.speculation.state, "reason": s.speculation.reason},
        },
        "model": {"target": info.target, "draft": info.draft, "backend": info.backend},
        "seed": reply.seed,
    }
