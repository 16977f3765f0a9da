"""A reply made again plainly, and its tokens one by one."""

import pytest
from fake_engine import LONG, Script

from localspec.core.errors import GrammarError, QueueFullError, UsageError
from localspec.core.events import Round, Speculation, Token
from localspec.core.values import Origin
from localspec.demo.speeds import TimedRun
from tui.widgets.message import ReplyView


async def test_details_on_a_key_below_or_beside(chat):
    async with chat(Script(LONG), size=(100, 24)) as c:
        await c.ask("Hello")
        await c.pilot.press("f2")
        await c.sees("draft 4.0, verify 15.0, else 1.0")
        await c.sees("drafted     ")
        log, panel = c.app.screen.query_one("ChatLog"), c.app.screen.query_one("Details")
        assert panel.region.y >= log.region.bottom
        await c.pilot.resize_terminal(200, 50)
        await c.until(lambda: panel.region.x >= log.region.right)
        await c.sees("by position")
        await c.pilot.press("f2")
        await c.until(lambda: "by position" not in c.screen_text)
        assert "drafted     " not in c.screen_text
        await c.pilot.press("f6")
        await c.sees("drafted     ")  # a high screen has room for the strip


async def test_compare_makes_the_reply_again_plainly_with_the_same_seed(chat):
    async with chat(Script(LONG), Script(LONG), size=(120, 30)) as c:
        await c.ask("Hello")
        await c.pilot.press("f3")
        await c.sees("identical: all 18 tokens are the same")
        await c.ready()
        assert c.engine.drafted == [True, False, True, False, True]
        assert all(asked == c.engine.asked[0] for asked in c.engine.asked)
        assert not c.engine.examined
        drafted, plainly = c.app.screen.query("CompareScreen TextFlow")
        assert plainly.region.x > drafted.region.right - 2
        await c.pilot.resize_terminal(60, 24)
        await c.until(lambda: plainly.region.y > drafted.region.y)
        await c.pilot.press("escape")
        await c.until(lambda: c.app.screen.query("Composer"))
        assert len(c.replies) == 1


async def test_compare_makes_the_reply_again_as_it_was_asked_for(chat):
    async with chat(Script(LONG, hold_at=2), Script(LONG), size=(120, 30)) as c:
        await c.ask_and_hold("Hello")
        await c.type("/temp 0.7")
        await c.type("/schema {}")
        await c.sees("replies fit a schema")
        c.engine.go.set()
        await c.ready()
        await c.pilot.press("f3")
        await c.sees("identical")
        first, again = c.engine.requests[:2]
        assert (again.sampling, again.grammar) == (first.sampling, first.grammar)


async def test_compare_names_the_first_difference_and_its_gap(chat):
    other = LONG.replace("five", "[red]5[/]")
    async with chat(Script(LONG), Script(other), size=(120, 30)) as c:
        await c.ask("Hello")
        await c.type("/compare")
        await c.sees("the first 4 tokens are the same")
        await c.sees("drafting wrote ' five' and plain decoding 'chosen', 0.0012 logits apart")
        assert [len(tokens) for tokens in c.engine.examined] == [5]
        await c.sees("[red]5[/]")


@pytest.mark.parametrize(
    "error",
    [
        UsageError("the gap takes too long"),
        GrammarError("the grammar takes too long"),
        QueueFullError("other replies need its place"),
    ],
)
async def test_compare_goes_on_where_the_place_cannot_be_examined(chat, error):
    async with chat(Script(LONG), Script(LONG.replace("five", "5")), size=(120, 30)) as c:

        async def refused(request, tokens, rival=None):
            raise error

        c.engine.examine = refused
        await c.ask("Hello")
        await c.type("/compare")
        await c.sees(f"drafting wrote ' five' and plain decoding ' 5'; {error}")
        await c.ready()
        assert c.engine.drafted == [True, False, True, False, True]


async def test_a_long_reason_in_the_details_stays_in_its_column(chat):
    reason = " ".join(["why"] * 40)
    async with chat(Script(LONG, speculation=Speculation("parked", reason))) as c:
        await c.pilot.press("f2")
        await c.ask("Hello")
        await c.sees("drafting    parked: why")
        await c.sees(f"\n{' ' * 14}why why why why")
        await c.pilot.resize_terminal(60, 40)
        await c.sees("tok/s · plain: why why why")
        await c.sees(f"drafting    parked: {'why ' * 7}why\n")


async def test_a_hint_that_is_too_long_for_its_line_is_whole_in_the_conversation(chat):
    async with chat(size=(60, 20)) as c:
        for _ in range(2):
            await c.type("/set temperature much")
            await c.until(lambda: "temperature must be a number" in c.stats)
            await c.pilot.press("ctrl+u")
            c.app.screen.feedback.hint(
                "a reason " + "that is longer than the line " * 3 + "THE-END"
            )
            await c.sees("THE-END")
            await c.ready()
        assert c.screen_text.count("a reason") == 1


class Plain(Script):
    """A reply without any draft."""

    def rounds(self):
        for tokens in super().rounds():
            yield from ([Token(t.token, t.text, Origin.PLAIN, None)] for t in tokens)


async def test_a_reply_without_drafts_is_not_compared_as_if_it_had_some(chat):
    plain = Plain(LONG)
    async with chat(plain, *[Plain(LONG)] * 4) as c:
        await c.ask("Hello")
        assert "×" not in c.stats
        await c.pilot.press("f3")
        await c.sees("identical: all 18 tokens are the same; nothing was drafted just now")


async def test_a_comparison_measures_both_speeds_now_whatever_the_reply_once_took(chat):
    slow, plainly, drafted = (Script(LONG, seconds=s) for s in (9.0, 0.05, 0.02))
    async with chat(slow, plainly, drafted, plainly, drafted, size=(120, 30)) as c:
        await c.ask("Hello")
        await c.pilot.press("f3")
        await c.sees("all 18 tokens are the same; with drafting it is 2.5× as fast")
        await c.sees("with drafting  128.6 tok/s now")
        await c.sees("plain decoding  51.4 tok/s now")
        await c.pilot.press("escape")
        await c.ready()
        assert "×" not in c.stats  # the status line is of the reply as it was made


async def test_a_comparison_of_equal_runs_that_differ_gives_no_factor(chat):
    runs = [Script(LONG, seconds=s) for s in (0.02, 0.05, 0.04, 0.08, 0.06)]
    async with chat(*runs, size=(120, 30)) as c:
        await c.ask("Hello")
        await c.pilot.press("f3")
        await c.sees("equal runs differ too much just now to compare speeds")
        assert "× as fast" not in c.screen_text


async def test_a_comparison_of_few_tokens_gives_no_factor(chat):
    async with chat(*[Script("Only a few words.")] * 5, size=(120, 30)) as c:
        await c.ask("Hello")
        await c.pilot.press("f3")
        await c.sees("the reply is too short to compare speeds")


def test_a_hiccup_of_the_machine_does_not_change_a_measured_speed():
    def done(seconds, drafted):
        return Round(drafted, 1, 1, 2, 0, 0, seconds, "model", 10, Speculation("on"))

    run, smooth = TimedRun(draft=True), TimedRun(draft=True)
    for number in range(20):
        run.add(done(5.0 if number == 7 else 0.02 + 0.02 * (number % 2), number % 2))
        smooth.add(done(0.02 + 0.02 * (number % 2), number % 2))
    assert run.speed == pytest.approx(smooth.speed)


async def test_a_long_verdict_is_whole_and_both_replies_scroll_together(chat):
    text = "\n".join(f"line {i} of a long reply" for i in range(60))
    other = text.replace("line 2 of", "line 2 or")
    async with chat(Script(text), Script(other), size=(60, 20)) as c:
        await c.ask("Hello")
        await c.pilot.press("f3")
        await c.sees("verify` measures by how")
        drafted, plainly = c.app.screen.query("VerticalScroll")
        await c.ready()  # the result of the timed runs may take another line
        await c.until(lambda: drafted.scroll_y == plainly.scroll_y > 5)
        drafted.scroll_to(y=5, animate=False)
        await c.until(lambda: plainly.scroll_y == 5)
        plainly.scroll_to(y=9, animate=False)
        await c.until(lambda: drafted.scroll_y == 9)


async def test_why_a_reply_cannot_be_looked_at_now_is_said(chat):
    async with chat(Script(LONG), Script(LONG, hold_at=2)) as c:
        await c.ask("Hello")
        await c.ask_and_hold("More")
        await c.pilot.press("f3")
        await c.until(lambda: "wait for the reply to end" in c.stats)
        await c.pilot.press("alt+left")
        await c.until(lambda: "wait for the reply to end" in c.stats)
        c.engine.die()
        await c.sees("The conversation is saved")
        await c.pilot.press("f3")
        await c.until(lambda: "the engine is not running" in c.stats)


async def test_a_stopped_reply_is_compared_as_far_as_it_went(chat):
    async with chat(Script(LONG, hold_at=3), Script(LONG), size=(120, 30)) as c:
        await c.ask_and_hold("Hello")
        await c.pilot.press("escape")
        await c.ready()
        await c.pilot.press("f3")
        await c.sees("identical: all 8 tokens are the same")


async def test_leaving_a_comparison_stops_it_and_the_chat_goes_on(chat):
    async with chat(Script(LONG), Script(LONG, hold_at=2), Script("Next.")) as c:
        await c.ask("Hello")
        await c.pilot.press("f3")
        await c.until(lambda: c.engine.holding)
        await c.sees("tokens, all the same")
        await c.pilot.press("escape")
        await c.ready()
        await c.ask("More")
        await c.sees("Next.")


async def test_an_engine_that_dies_in_a_comparison_is_said(chat):
    async with chat(Script(LONG), Script(LONG, hold_at=2)) as c:
        await c.ask("Hello")
        await c.pilot.press("f3")
        await c.until(lambda: c.engine.holding)
        c.engine.die()
        await c.sees("the comparison failed: the engine stopped")
        await c.pilot.press("escape")
        await c.sees("The conversation is saved")


async def test_nothing_to_compare_is_said(chat):
    async with chat(Script(error=UsageError("not now"))) as c:
        await c.ask("Hello")
        await c.pilot.press("f3")
        await c.until(lambda: "no reply that can be repeated" in c.stats)


async def test_a_cursor_over_tokens_shows_p_q_and_alternatives(chat):
    async with chat(Script(LONG), size=(110, 30)) as c:
        await c.ask("Hello")
        await c.pilot.press("alt+left")
        await c.sees("token 18/18")
        await c.sees("p 0.750  q 0.500  raw 70.0%")
        await c.sees("' other' 20.0%")
        await c.pilot.press("alt+left", "alt+left")
        await c.sees("token 16/18")
        await c.until(lambda: c.engine.examined[-1] == c.replies[0].made.reply.tokens[:16])
        flow = c.app.screen.query_one(ReplyView).flow
        marked = [
            line.text[span.start : span.end]
            for line in flow.entries
            for span in line.content.spans
            if span.style == "reverse"
        ]
        assert "".join(marked).strip() == "b"
        await c.pilot.press("ctrl+t")
        await c.until(lambda: "token 16/18" not in c.screen_text)


async def test_a_click_on_a_token_moves_the_cursor_there(chat):
    async with chat(Script(LONG), Script("Other words."), size=(110, 40)) as c:
        await c.ask("Hello")
        await c.ask("More")
        await c.pilot.press("ctrl+t")
        await c.sees("- a")
        await c.settled()
        flow = c.app.screen.query(ReplyView).first().flow
        await c.pilot.click(flow, offset=(LONG.index("four") + 1, 0))
        await c.sees("token 4/18  ' four'  corrected, the guess was wrong  p 0.750")
        await c.pilot.click(flow, offset=(LONG.index("five") + 1, 0))
        await c.sees("token 5/18  ' five'  found in earlier text  p 0.750  q 1, looked up")
        await c.pilot.press("alt+right")
        await c.sees("token 6/18")
        await c.pilot.click(c.app.screen.query(ReplyView).last().flow, offset=(0, 0))
        await c.sees("token 1/2")
        marks = [
            line.text[span.start : span.end]
            for view in c.app.screen.query(ReplyView)
            for line in view.flow.entries
            for span in line.content.spans
            if span.style == "reverse"
        ]
        assert marks == ["Other"]


async def test_the_token_under_the_cursor_is_scrolled_into_sight(chat):
    async with chat(Script("\n".join(f"line {i}" for i in range(60))), size=(80, 24)) as c:
        await c.ask("Hello")
        await c.pilot.press("alt+left")
        await c.sees("token 120/120")
        c.app.screen._widgets.token_bar.go(c.replies[0], 20)
        await c.pilot.press("alt+left")
        await c.sees("token 20/120")
        await c.sees("line 9")
        assert "line 59" not in c.screen_text


async def test_explanations_stay_in_their_column(chat):
    async with chat(size=(60, 150)) as c:
        await c.type("/help")
        await c.sees("/quit")
        lines = c.screen_text.splitlines()
        place = next(i for i, line in enumerate(lines) if "F9" in line)
        start = lines[place].index("continue a stopped")
        assert lines[place + 1][:start].isspace()
        assert lines[place + 1][start:].strip()
        place = next(i for i, line in enumerate(lines) if "Ctrl+J / Shift+Enter" in line)
        assert lines[place + 1].strip() == "a new line"
