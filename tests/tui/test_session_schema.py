"""/schema in the chat: what replies must be, shown where the user types."""

from __future__ import annotations

from localspec.core.events import Round, Speculation
from localspec.core.sampling_params import Sampling
from tui.session.commands import parse
from tui.session.meter import Meter
from tui.session.session import Session
from tui.session.settings import Settings


class _Engine:
    on_death = None
    pid = None


def session() -> Session:
    return Session(_Engine(), Settings(Sampling()))


def test_a_schema_is_part_of_the_next_requests_until_it_is_switched_off(tmp_path):
    file = tmp_path / "person.json"
    file.write_text('{"type": "object"}', encoding="utf-8")
    one = session()
    assert one.settings.invitation == "Message"
    told = one.change(parse(f"/schema {file}"))
    assert told == "replies fit person.json from the next one on"
    assert one.settings.request(()).grammar.kind == "schema"
    assert one.settings.invitation == "Message; replies fit person.json"
    one.change(parse("/schema off"))
    assert one.settings.request(()).grammar is None
    assert one.settings.invitation == "Message"


def test_a_schema_that_cannot_be_followed_changes_nothing(tmp_path):
    file = tmp_path / "odd.json"
    file.write_text('{"not": {"type": "string"}}', encoding="utf-8")
    one = session()
    one.change(parse('/schema {"type": "object"}'))
    assert "not supported: not" in one.change(parse(f"/schema {file}"))
    assert "no file" in one.change(parse(f"/schema {tmp_path / 'missing.json'}"))
    assert one.settings.grammar_name == "a schema"
    assert "replies fit a schema" in one.change(parse("/schema"))


def test_forced_tokens_are_the_grammars_in_the_details_too():
    meter = Meter()
    spent = {"draft_seconds": 0.1, "verify_seconds": 0.1, "seconds": 0.2, "source": "model"}
    on = Speculation("on")
    meter.add(
        Round(6, 5, 4, 5, **spent, context_used=9, speculation=on, forced=3, forced_accepted=3)
    )
    assert (meter.by_drafter["grammar"].drafted, meter.by_drafter["grammar"].accepted) == (3, 3)
    assert (meter.by_drafter["model"].drafted, meter.by_drafter["model"].accepted) == (3, 1)
    meter.add(
        Round(2, 2, 2, 3, **spent, context_used=9, speculation=on, forced=2, forced_accepted=2)
    )
    assert meter.by_drafter["model"].drafted == 3
    assert meter.by_drafter["grammar"].verified == 5
