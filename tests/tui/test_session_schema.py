"""/schema in the chat: what replies must be, shown where the user types."""

from __future__ import annotations

from localspec.core.events import Round, Speculation
from tui.session.meter import Meter


async def test_a_schema_is_part_of_the_next_requests_until_it_is_switched_off(chat, tmp_path):
    file = tmp_path / "person.json"
    file.write_text('{"type": "object"}', encoding="utf-8")
    async with chat() as c:
        assert c.composer.placeholder == "Message"
        await c.type(f"/schema {file}")
        await c.sees("replies fit person.json from the next one on")
        assert c.session.settings.request(()).grammar.kind == "schema"
        await c.until(lambda: c.composer.placeholder == "Message; replies fit person.json")
        await c.type("/schema off")
        await c.sees("replies may be any text from the next one on")
        assert c.session.settings.request(()).grammar is None
        await c.until(lambda: c.composer.placeholder == "Message")


async def test_a_schema_that_cannot_be_followed_changes_nothing(chat, tmp_path):
    file = tmp_path / "odd.json"
    file.write_text('{"not": {"type": "string"}}', encoding="utf-8")
    async with chat(size=(160, 40)) as c:
        await c.type('/schema {"type": "object"}')
        await c.sees("replies fit a schema from the next one on")
        await c.type(f"/schema {file}")
        await c.sees("not supported: not")
        await c.type(f"/schema {tmp_path / 'missing.json'}")
        await c.sees("no file")
        assert c.session.settings.grammar_name == "a schema"
        await c.type("/schema")
        await c.sees("replies fit a schema; /schema off ends that")


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
