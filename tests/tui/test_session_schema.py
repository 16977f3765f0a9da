"""/schema in the chat: what replies must be, shown where the user types."""

from __future__ import annotations


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
