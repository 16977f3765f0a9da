"""Conversations that heads of every kind draft for, with all that can happen to one: what is said
is what plain decoding says, whatever the caches of target and head went through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf_tools
import head_files
import pytest
from heads.compose import compose_mtp
from replies import StopAfter
from widen import widen

from localspec import Finished, Message, Options, Reply, ReplyRequest, Runtime, Sampling
from localspec.core.events import Round
from localspec.core.files.paths import DEMO_DIR
from localspec.prefix_cache import cache, search

ENDLESS = tuple((token, -100.0) for token in range(3))
WARM = Sampling(temperature=1.0, logit_bias=ENDLESS)
COLD = Sampling(temperature=0.0, logit_bias=ENDLESS)
HEADS = Path(__file__).parents[1] / "data" / "heads"
TRAINED = ("trained mtp", "trained eagle3", "trained medusa")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, Path, Path | None]]:
    """For each kind: drafter, target, and the head's file where that is apart."""
    folder = tmp_path_factory.mktemp("lives")

    def inside(name: str) -> Path:
        (folder / name).mkdir()
        return folder / name / "m.gguf"

    # Of 4 bits, logits depend on how a prompt was cut into passes, if only at near-ties.
    widen(DEMO_DIR / "target.gguf", demo := inside("demo"))
    compose_mtp(demo, HEADS / "mtp-block.gguf", inside("trained"))
    dense = gguf_tools.write_llama(inside("dense"), layers=4, seed=3, context=1024)
    eagle = head_files.write_eagle(inside("eagle"), ids=[*range(3, 120)])
    medusa = head_files.write_medusa(inside("medusa"), own=(1,))
    mamba = gguf_tools.write_mamba(inside("mamba"), width=head_files.WIDTH)
    dflash = head_files.write_dflash(inside("dflash"), own=True)
    gemma = head_files.write_gemma(inside("gemma"))
    assistant = head_files.write_assistant(inside("assistant"))
    hybrid, hy = head_files.write_hybrid(inside("hybrid")), inside("hy_v3")
    head_files.write_chained(hy, "hy_v3")
    return {
        "trained mtp": ("mtp", folder / "trained" / "m.gguf", None),
        "trained eagle3": ("eagle3", demo, HEADS / "eagle3.gguf"),
        "trained medusa": ("medusa", demo, HEADS / "medusa.gguf"),
        "mtp": ("mtp", head_files.write_mtp(inside("glm")), None),
        "hybrid": ("mtp", hybrid, None),
        "hy_v3": ("mtp", hy, None),
        "eagle3": ("eagle3", dense, eagle),
        "medusa": ("medusa", dense, medusa),
        "medusa on a recurrent target": ("medusa", mamba, medusa),
        "dflash": ("dflash", dense, dflash),
        "assistant": ("mtp", gemma, assistant),
        **{
            name: ("mtp", head_files.write_chained(inside(name), name), None)
            for name in ("step35", "mimo2")
        },
    }


@pytest.fixture(autouse=True)
def _states_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(search.Moving, "seconds", lambda *_: 0.0)


class Plain:
    """Says what is right, plainly and from nothing: the same for the same tokens, so only once."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._said: dict[tuple[object, ...], Reply] = {}

    def reply(self, messages: Sequence[Message], **asked: Any) -> Reply:
        key = (*self.runtime.encode(messages), *asked.items())
        if key not in self._said:
            self.runtime.forget()
            *_, right = self.runtime.reply(messages, **asked, draft=False)
            assert isinstance(right, Finished)
            self._said[key] = right.reply
        return self._said[key]


@dataclass
class Life:
    """A runtime that drafts, and one that says the same plainly."""

    runtime: Runtime
    plain: Plain
    outcomes: set[str] = field(default_factory=set)
    """How much of a draft stood: none, some, all."""

    def __post_init__(self) -> None:
        # Both then read a reply of before as the tokens that it was made of.
        own, theirs = self.plain.runtime._scheduler.preparation, self.runtime._scheduler.preparation
        own.prompts = theirs.prompts

    def ask(
        self,
        messages: Sequence[Message],
        *,
        sampling: Sampling = WARM,
        seed: int = 1,
        most: int | None = 20,
        until: int | None = None,
    ) -> Reply:
        """A reply; interrupted after so many tokens with ``until``."""
        asked = {"sampling": sampling, "seed": seed, "max_tokens": most}
        request = ReplyRequest(tuple(messages), **asked)
        if until is None:
            events = self.runtime.submit(request)
        else:
            policy = StopAfter(self.runtime.pair.control.policy, until)
            events = self.runtime.submit(request, policy.interrupt, policy=policy)
        for event in events:
            if isinstance(event, Round) and event.verified:
                stood = event.accepted / event.drafted
                self.outcomes.add("all" if stood == 1 else "some" if stood else "none")
        assert isinstance(event, Finished)
        found, expected = event.reply.tokens, self.plain.reply(messages, **asked).tokens
        stopped = event.reply.finish_reason == "interrupt"
        expected = expected[: len(found)] if stopped else expected
        if found != expected:  # nearly equal logits, whose last bits depend on who read what when
            at = next(i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b)
            request = ReplyRequest(tuple(messages), sampling=sampling, seed=seed)
            place = self.plain.runtime.examine(request, expected[: at + 1], found[at])
            assert place.gap is not None
            assert place.gap < 1e-3
        return event.reply


def user(text: str) -> Message:
    return Message("user", text)


def assistant(text: str) -> Message:
    return Message("assistant", text)


def live(life: Life) -> list[Message]:
    """Everything that can happen in a chat, and in another one beside it; where it stands then."""
    chat = [user("Hello there, hello there, hello. Repeat: one two three, one two three, one")]
    stopped = life.ask(chat, most=100, until=6)
    life.ask([*chat, assistant(stopped.text)])  # it goes on where it was stopped
    life.ask(chat, seed=2)  # another try
    reply = life.ask(chat, seed=2)  # and the same again
    chat += [assistant(reply.text), user("And then? one two three, one")]
    second = life.ask(chat, sampling=COLD)
    other = life.ask([user("Another chat, another chat, an")], seed=3)
    life.ask(chat, sampling=COLD, seed=4)  # back again
    longer = [*chat, assistant(second.text), user("more")]
    life.runtime.examine(ReplyRequest(tuple(longer), sampling=WARM, seed=1), second.tokens[:3])
    life.ask(longer, seed=5)
    life.ask([*chat[:-1], user("And now something else")], seed=6)  # edited
    life.ask([user("Hello here"), *chat[1:]], seed=7, until=3)  # from the beginning
    life.ask([user("Another chat, another chat, an"), assistant(other.text), user("an")], seed=8)
    life.ask(longer, sampling=COLD, most=None)  # until the context ends
    return longer


MORE = (
    *((kind, 3, None) for kind in ("mtp", "hybrid", "eagle3", "medusa", "hy_v3")),
    *((kind, 3, None) for kind in ("step35", "mimo2")),
    # Longer than a recurrent state can be taken back.
    *((kind, 12, None) for kind in ("medusa on a recurrent target", "dflash")),
    ("eagle3", 6, "tree"),
    ("trained mtp", 3, None),
    ("trained eagle3", 6, "tree"),
    ("trained medusa", 6, "tree"),
)
SLOW = (pytest.mark.slow, pytest.mark.timeout(600))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "k", "asked"),
    [
        # One for each way that the caches go.
        ("hybrid", 12, None),
        ("dflash", 3, None),
        ("assistant", 3, None),
        ("mtp", 6, "tree"),
        *(pytest.param(*case, marks=SLOW) for case in MORE),
    ],
)
def test_whatever_happens_in_a_chat_with_a_head_the_text_is_that_of_plain_decoding(
    pairs: dict[str, tuple[str, Path, Path | None]], kind: str, k: int, asked: str | None
) -> None:
    drafter, target, head = pairs[kind]
    options = Options(
        str(target),
        None if head is None else str(head),
        drafter=(asked or drafter,),
        draft_max=k,
        context=300,
        threads=1,
    )
    with Runtime.open(options) as undrafted:
        plain = Plain(undrafted)
        with Runtime.open(options) as runtime:
            runtime.keep_states()
            life = Life(runtime, plain)
            chat = live(life)
            last = life.ask(chat, seed=9)
            runtime.rest()
        with Runtime.open(options) as runtime:
            runtime.keep_states()  # another day: the target's cache comes from the disk
            again = Life(runtime, plain, life.outcomes)
            reply = again.ask([*chat, assistant(last.text), user("Once more")], seed=10)
            assert reply.stats.cached_tokens > 50
            assert reply.stats.by_drafter[drafter].drafted
            again.ask(chat, seed=11)
            live(again)
    assert again.outcomes >= ({"none", "some", "all"} if kind in TRAINED else {"none"})
