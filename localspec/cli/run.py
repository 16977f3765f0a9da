"""``localspec run``: one reply, streamed."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from localspec.cli import elsewhere
from localspec.cli.acting import acting, after_calls, require_alone, tool_flags
from localspec.cli.beside_prompt import BesideThePrompt
from localspec.cli.containment import Unfinished, contain
from localspec.cli.flags import (
    LOADING,
    flags_of,
    preset_flag,
    sampling_flags,
    setting_option,
    sort_flags,
    system_message,
    with_jobs,
)
from localspec.cli.grammar_flags import grammar_flags, take_grammar
from localspec.cli.images import asking, image_flag, read_images, require_messages
from localspec.cli.interrupt import CtrlC
from localspec.cli.output import (
    read_stdin,
    require_text,
    require_utf8,
    say,
    summary,
    tell,
    write,
    write_json,
)
from localspec.cli.prompt_file import Around, PromptLine, read_prompts
from localspec.cli.run_report import (
    Partial,
    ScoredOutput,
    calls_report,
    read_prediction,
    report,
    require_json,
)
from localspec.cli.working import open_runtime
from localspec.core import settings_schema as schema
from localspec.core.emitted import MOST_ALTERNATIVES
from localspec.core.errors import UsageError
from localspec.core.events import Finished, Message, ModelInfo, Notice, Reply, ReplyEvent, Token
from localspec.core.picture import Picture
from localspec.core.reply_request import ReplyRequest

if TYPE_CHECKING:
    from localspec.chats.calls import SavedCall
    from localspec.core.options import Options
    from localspec.tools.written_calls import WrittenCalls


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
@click.option(
    "--parallel",
    metavar="FILE",
    help=(
        "Answer every line of FILE, several at a time (see --jobs): a prompt a line, or JSON lines "
        "with the fields of a request. Prints a JSON object for each, in their order; - is stdin."
    ),
)
@click.option(
    "--logprobs",
    type=click.IntRange(0, MOST_ALTERNATIVES),
    metavar="N",
    help="With --json: the log-probability of each token, and of the N most probable alternatives.",
)
@click.option(
    "--prediction",
    metavar="FILE",
    help="A text that the reply will be much like, such as code to be edited: drafted from.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.option(
    "--stats", is_flag=True, help="Print statistics on stderr even if it is not a terminal."
)
@image_flag
@elsewhere.url_flag
@tool_flags
@grammar_flags
@preset_flag
@flags_of(LOADING, jobs="1; --parallel: up to 4")
@sampling_flags
def command(
    prompts: tuple[str, ...],
    model: str | None,
    system: str | None,
    stop: tuple[str, ...],
    *,
    raw: bool,
    parallel: str | None,
    as_json: bool,
    stats: bool,
    logprobs: int | None,
    prediction: str | None,
    images: tuple[str, ...],
    url: str | None,
    allowed: tuple[str, ...],
    folder: str | None,
    **flags: Any,
) -> int:
    """Answer PROMPT once. With -, or a pipe and no PROMPT, the prompt is read from stdin; with
    PROMPT -, the text of stdin follows PROMPT.
    """
    beside = BesideThePrompt(prompts)
    prompt = _only(beside.prompts)
    if parallel is not None and prompt is not None:
        raise UsageError("--parallel takes its prompts from a file; leave out the one behind run")
    if url is None:
        contain()
    elif parallel is not None:
        raise UsageError("--parallel answers with a model of this machine; leave out --url")
    expected = read_prediction(prediction, url)
    require_json(logprobs, url, as_json=as_json or parallel is not None)
    pictures = read_images(images)
    require_messages(pictures, raw=raw, url=None)
    text = beside.joined(_text(prompt)) if parallel is None else ""
    lines = [] if parallel is None else read_prompts(parallel)
    grammar = take_grammar(flags)
    require_alone(allowed, folder, (raw, parallel, url, grammar, logprobs))
    asked = sort_flags(model, flags)
    system = system_message(system)
    if raw and system is not None:
        raise UsageError("--system needs the chat template, which --raw leaves out")
    base = ReplyRequest(
        sampling=asked.sampling,
        seed=asked.seed,
        max_tokens=asked.max_tokens,
        stop=tuple(require_utf8(text, "--stop") for text in stop),
        grammar=grammar,
        logprobs=logprobs,
        prediction=expected,
    )
    options = dataclasses.replace(asked.options, sees=bool(pictures))
    if parallel is not None:
        return _answer_all(lines, base, options, pictures, system=system, raw=raw)
    about = (Message("system", system),) if system is not None else ()
    request = dataclasses.replace(
        base,
        messages=() if raw else (*about, asking(text, pictures)),
        prompt=text if raw else None,
    )
    server = elsewhere.chosen(url, model, asked.sampling)
    scored = ScoredOutput(request)
    tools = (allowed, folder)
    if server is None:
        beside.tell_of_model()
    beside.tell_of_stdin()
    answered = _answer(request, options, server, scored, tools, show=not as_json)
    beside.tell_of_stdin()
    reply, info, stopped, calls = answered
    if as_json:
        write_json({**report(reply, info), **scored.fields(), **calls_report(calls)})
    else:
        _tell_of_the_toy(reply, info)
    if stats or (sys.stderr.isatty() and not as_json):
        say(summary(reply.stats), dim=True)
    if stopped or reply.finish_reason == "interrupt":
        return 130
    return 0 if reply.valid else 1


def _text(prompt: str | None) -> str:
    """The prompt, or stdin for it."""
    if prompt is None and sys.stdin.isatty():
        raise UsageError("give a prompt: localspec run 'Hello', or - to read stdin")
    return require_text(read_stdin() if prompt in {None, "-"} else prompt or "")


def _answer(
    request: ReplyRequest,
    options: Options,
    server: elsewhere.Elsewhere | None,
    scored: ScoredOutput,
    tools: tuple[tuple[str, ...], str | None],
    *,
    show: bool,
) -> tuple[Reply, ModelInfo, bool, list[SavedCall]]:
    """The reply, streamed to stdout with ``show``; what answered; whether Ctrl-C was pressed; the
    calls that were made for it.
    """
    with (
        CtrlC() as ctrl_c,
        acting(*tools, lambda: ctrl_c.pressed) as act,
        elsewhere.opened(options, server, lambda: ctrl_c.pressed) as runtime,
    ):
        for notice in runtime.info.notices:
            tell(notice)
        act.context = runtime.info.context
        request = act.request(request)
        while True:
            stream = runtime.submit(request)
            ctrl_c.on_first = stream.interrupt
            if ctrl_c.pressed:
                stream.interrupt()
            written = act.reader(request)
            with Unfinished() as unfinished:
                seed, remote = request.seed, server is not None
                partial = Partial(runtime.info, seed, unfinished.hold, remote=remote)
                reply = _follow(stream, scored, None if show else partial, written, show=show)
            if written is None or not act.goes_on(written):
                return reply, runtime.info, ctrl_c.pressed, act.made
            request = after_calls(request, written, act.run(written))


def _answer_all(
    lines: Sequence[PromptLine],
    base: ReplyRequest,
    options: Options,
    pictures: Sequence[Picture],
    *,
    system: str | None,
    raw: bool,
) -> int:
    """Answer the lines of a file, several at a time."""
    from localspec.cli.parallel import JOBS, ParallelRun

    options = with_jobs(options, min(JOBS, len(lines)))
    with (
        CtrlC() as ctrl_c,
        open_runtime(options, lambda: ctrl_c.pressed) as runtime,
    ):
        asking_with = Around(system, raw=raw, pictures=tuple(pictures))
        return ParallelRun(runtime, lines, base, asking_with, ctrl_c=ctrl_c).run()


def _only(prompts: tuple[str, ...]) -> str | None:
    """The one prompt, if any; several words are a prompt without quotes, or a model before it."""
    if len(prompts) < 2:
        return next(iter(prompts), None)
    first, rest = prompts[0], shlex.join([" ".join(prompts[1:])])
    raise UsageError(
        f"run takes one prompt, and there are {len(prompts)}; put it in quotes. The model goes "
        f"with -m: localspec run -m {shlex.quote(first)} {rest}"
    )


def _tell_of_the_toy(reply: Reply, info: ModelInfo) -> None:
    """Name the model for this machine where the embedded one named a model."""
    if "localspec pull" in reply.text:
        from localspec.loading.offers import after_the_toy  # slow to import

        if said := after_the_toy(info.target):
            tell(said)


def _follow(
    events: Iterator[ReplyEvent],
    scored: ScoredOutput | None = None,
    partial: Partial | None = None,
    written: WrittenCalls | None = None,
    *,
    show: bool,
) -> Reply:
    """Stream a reply to stdout, or only wait for its end. On a terminal, a notice would be in the
    middle of a line of the reply: those that come after its first token follow its end.
    """
    shown = 0
    late: list[str] = []
    try:
        for event in events:
            for reader in (scored, partial, written):
                if reader is not None:
                    reader.take(event)
            if isinstance(event, Token) and show:
                shown += _write(event.text if written is None else written.said[shown:])
            elif isinstance(event, Notice) and shown:
                late.append(event.text)
            elif isinstance(event, Notice):
                tell(event.text)
            elif isinstance(event, Finished):
                if show:
                    _write_end(event.reply, written, shown)
                return event.reply
    finally:
        for text in late:
            tell(text)
    raise AssertionError("a reply ends with Finished")


def _write(text: str) -> int:
    """Write to stdout; how many characters."""
    write(text)
    return len(text)


def _write_end(reply: Reply, written: WrittenCalls | None, shown: int) -> None:
    """Write the rest of a reply and end its line; a reply of calls alone has none."""
    text = reply.text if written is None else written.said
    if text or written is None:
        write(text[shown:] + "\n")
