"""The figures of the bottom line and of the details panel."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.core import codec
from localspec.core.events import (
    LONGEST_BRIEF,
    ModelInfo,
    Reading,
    Round,
    Speculation,
    Speedup,
    Stats,
)
from localspec.core.sampling_params import Sampling
from localspec.remote.probe import NOT_REPORTED
from tui.render.stats_panel import details, strip
from tui.session import reply_record
from tui.session.conversation import ChatTurn, Conversation
from tui.session.meter import Meter
from tui.session.open_chat import OpenChat
from tui.session.recipes import How
from tui.session.recorder import ChatRecorder
from tui.session.stats import SEPARATOR, everyday_line, expert_lines, share_in_words

ON = Speculation("on")
FASTER, SLOWER, SAME, UNKNOWN = (
    Speedup(1.43, 0.06),
    Speedup(0.78, 0.06),
    Speedup(1.03, 0.06),
    Speedup(1.3, 0.5),
)
SETTING = "match T 0.8"


def a_round(emitted=3, seconds=0.02, speculation=ON, speedup=None):
    times = (0.005, 0.01, seconds)
    return Round(4, 3, 2, emitted, *times, "model", 310, speculation, speedup, corrected=1)


def some_stats(speculation=ON, speedup=None):
    return Stats(9, 0, 131, 50, 900, 655, 412, (), {}, 0.1, 1.0, 0.2, 0.7, speculation, speedup)


def a_meter(rounds=10, **more):
    meter = Meter()
    meter.opened(ModelInfo("t", "d", "cpu", 2048, "demo", 1, 1, 1, ON))
    for _ in range(rounds):
        meter.add(a_round(**more))
    return meter


def text(line):
    return SEPARATOR.join(figure.text for figure in line)


def styles(line):
    return {figure.text: figure.style for figure in line}


def test_strict_mode_is_shown_on_the_everyday_line():
    assert "strict" in text(everyday_line(a_meter(), 76, strict=True))
    assert "strict" in text(everyday_line(a_meter(rounds=0), 76, strict=True))
    assert "strict" not in text(everyday_line(a_meter(), 76))


def test_the_everyday_line_says_speed_gain_and_right_guesses():
    line = everyday_line(a_meter(speedup=FASTER), 76)
    assert text(line) == "150 tok/s · 1.4× faster · 2 of 3 guesses right"
    assert styles(line)["1.4× faster"] == "$text-success"


def test_no_state_contradicts_what_was_measured():
    slower = everyday_line(a_meter(speedup=SLOWER), 76)
    assert text(slower) == "150 tok/s · 1.3× slower · 2 of 3 guesses right"
    assert styles(slower)["1.3× slower"] == "$text-warning"
    same = everyday_line(a_meter(speedup=SAME), 76)
    assert styles(same)["about as fast as plain"] == "$quiet"
    for speedup in (SLOWER, SAME, UNKNOWN, None):
        lines = [everyday_line(a_meter(speedup=speedup), 100)]
        lines += expert_lines(a_meter(speedup=speedup), SETTING, 120)
        assert "$text-success" not in [f.style for line in lines for f in line]
        assert "faster" not in "".join(map(text, lines))
    parked = a_meter(speculation=Speculation("parked", "plain is faster here"), speedup=FASTER)
    assert "not drafting" not in text(everyday_line(parked, 76))


def test_the_factor_is_of_this_reply_only():
    meter = a_meter(speedup=FASTER)
    meter.finish(some_stats(speedup=FASTER))
    meter.start()
    meter.add(a_round())
    assert "×" not in text(everyday_line(meter, 100))


def test_before_the_first_reply_there_is_no_speed():
    assert text(everyday_line(a_meter(rounds=0), 76)) == "ready"
    assert text(everyday_line(a_meter(rounds=0), 76, running=True)) == "before the first token"
    (line,) = expert_lines(a_meter(rounds=0), "match T 0", 100)
    assert text(line) == "ctx 0/2048 · match T 0 · drafting on"


@pytest.mark.parametrize(
    ("part", "whole", "words"),
    [
        (3, 4, "3 of 4"),
        (412, 655, "3 of 5"),
        (400, 600, "2 of 3"),
        (0, 7, "0 of 7"),
        (7, 7, "7 of 7"),
        (1, 1000, "1 of 1000"),
        (999, 1000, "999 of 1000"),
        (93, 100, "9 of 10"),
    ],
)
def test_a_share_in_words(part, whole, words):
    assert share_in_words(part, whole) == words


@given(st.integers(0, 500), st.integers(1, 500))
def test_a_share_in_words_is_never_far_off(part, whole):
    part = min(part, whole)
    words = share_in_words(part, whole)
    few, _, n = words.partition(" of ")
    shown = int(few) / int(n)
    assert shown == pytest.approx(part / whole, abs=0.032)
    assert (shown == 0) == (part == 0)
    assert (shown == 1) == (part == whole)


REASON = (
    "checking drafts costs too much here: checking 4 tokens takes 7.1 times as long as one, and "
    "drafting one takes 6% of that time"
)
BRIEF = "checking drafts costs too much here"


@pytest.mark.parametrize("width", [54, 76, 116])
def test_why_nothing_is_drafted_is_whole_in_brief_on_every_line(width):
    meter = a_meter(speculation=Speculation("parked", REASON, BRIEF))
    meter.memory = 1_500_000_000
    line = text(everyday_line(meter, width))
    assert line.startswith("150 tok/s")
    label = "not drafting" if width >= 76 else "plain"
    assert line.endswith(f" · {label}: {BRIEF}")
    for two in (False, True):
        assert text(expert_lines(meter, SETTING, width, two=two)[-1]).endswith(f"parked: {BRIEF}")
    assert details(meter, SETTING)[0] == ("drafting", f"parked: {REASON}")


@pytest.mark.parametrize("width", [28, 36, 40, 50])
def test_a_narrow_line_has_the_speed_and_that_decoding_is_plain(width):
    meter = a_meter(speculation=Speculation("parked", REASON, BRIEF))
    line = text(everyday_line(meter, width))
    assert line.startswith("150 tok/s · plain: checking")
    assert len(line) <= width


def test_a_speed_below_ten_has_a_digit_more_and_one_that_is_not_known_is_none():
    assert text(everyday_line(a_meter(rounds=4, emitted=1, seconds=2.2), 76)).startswith(
        "0.5 tok/s"
    )
    at_once = a_meter(rounds=1, emitted=12, seconds=0.0001)  # the first pieces of a server
    for line in (everyday_line(at_once, 76), expert_lines(at_once, SETTING, 120)[0]):
        assert text(line).startswith("- tok/s")


def test_a_reason_that_says_that_decoding_is_plain_needs_no_label():
    brief = "plain decoding is faster"
    meter = a_meter(speculation=Speculation("parked", f"{brief}: 0% right", brief))
    assert text(everyday_line(meter, 36)).endswith(f" · {brief}")


def test_a_reply_that_was_stopped_before_its_first_round_says_nothing_of_drafting():
    meter = a_meter(rounds=0)
    none = Speculation("parked", "the reply ended before its first round", "no round was needed")
    meter.finish(Stats(9, 0, 0, 0, 0, 0, 0, (), {}, 0.1, 0.0, 0.0, 0.0, none, None))
    assert text(everyday_line(meter, 76)) == "ready"


def test_the_usual_state_of_not_drafting_is_quiet_and_what_is_off_is_not():
    for state, style in (("parked", "$quiet"), ("off", "$text-warning")):
        meter = a_meter(speculation=Speculation(state, REASON, BRIEF))
        assert styles(everyday_line(meter, 100))[f"not drafting: {BRIEF}"] == style
        assert styles(expert_lines(meter, SETTING, 120)[0])[f"{state}: {BRIEF}"] == style


def test_the_everyday_speed_of_a_running_reply_is_that_of_all_of_it():
    """One slow round at the end made it "2 tok/s" beside half of a reply of 24."""
    meter = a_meter(rounds=20)
    meter.add(a_round(emitted=1, seconds=1.2))
    assert text(everyday_line(meter, 76)).startswith(f"{61 / 1.6:.0f} tok/s")


def test_a_share_of_a_few_guesses_is_not_shown():
    assert "right" not in text(everyday_line(a_meter(rounds=2), 76))
    assert "2 of 3 guesses right" in text(everyday_line(a_meter(rounds=3), 76))


def test_a_reason_without_a_brief_form_is_cut():
    meter = a_meter(speculation=Speculation("off", "x" * 80))
    reason = text(everyday_line(meter, 76)).rpartition(": ")[2]
    assert len(reason) == LONGEST_BRIEF
    assert reason.endswith("…")


def test_a_context_that_is_nearly_full_is_shown():
    meter = a_meter()
    assert "context" not in text(everyday_line(meter, 76))
    meter.used = 1900
    assert "context 93% full" in text(everyday_line(meter, 76))


speculations = st.builds(
    Speculation, st.sampled_from(["on", "parked", "off"]), st.text(max_size=60), st.none()
)
speedups = st.sampled_from([None, FASTER, SLOWER, SAME, UNKNOWN])


@given(st.integers(20, 140), speculations, speedups)
def test_every_line_fits_and_the_state_leaves_last(width, speculation, speedup):
    meter = a_meter(speculation=speculation, speedup=speedup)
    lines = [everyday_line(meter, width), *expert_lines(meter, SETTING, width)]
    lines += expert_lines(meter, SETTING, width, two=True)
    assert all(len(text(line)) <= width for line in lines)
    assert all(text(line) for line in lines)
    if width >= 50:
        for state in (text(lines[1]), text(lines[3])):
            assert state.rpartition(SEPARATOR)[2].startswith(("drafting on", "parked: ", "off: "))


def test_all_figures_on_one_line():
    meter = a_meter()
    (line,) = expert_lines(meter, SETTING, 120)
    assert text(line) == (
        "150 tok/s (mean 150) · accepted 20/30 67% · 3.0 tok/round · K 4 · ctx 310/2048 · "
        "match T 0.8 · drafting on"
    )
    meter.finish(some_stats(speedup=FASTER))
    (line,) = expert_lines(meter, SETTING, 120)
    assert text(line).startswith(
        "131 tok/s mean · 1.4× faster · accepted 412/655 63% · 2.6 tok/round"
    )


@given(st.integers(20, 200))
def test_two_lines_of_figures_hold_no_less_than_one(width):
    meter = a_meter()
    meter.memory = 1_500_000_000
    first, second = (text(line) for line in expert_lines(meter, SETTING, width, two=True))
    assert max(len(first), len(second)) <= width
    if width >= 80:
        assert "mem 1.5 GB" in second
        assert second.startswith("ctx 310/2048")
        assert "tok/s" in first


def test_the_present_speed_looks_back_one_second():
    meter = a_meter(rounds=100, emitted=2, seconds=0.02)
    for _ in range(60):
        meter.add(a_round(emitted=4, seconds=0.02))
    assert meter.now == pytest.approx(200)
    assert meter.mean == pytest.approx(137.5)


def test_the_strip_has_a_column_a_round_and_shows_the_newest():
    rounds = [a_round()] * 3 + [Round(0, 0, 0, 1, 0.0, 0.01, 0.01, "off", 1, ON)]
    drafted, accepted = strip(rounds, 10)
    assert (drafted, accepted) == ("███·", "▄▄▄ ")
    assert strip(rounds, 2) == ("█·", "▄ ")
    assert strip([], 5) == ("", "")


def test_details_add_up():
    meter = a_meter(speedup=FASTER)
    meter.token()
    found = dict(details(meter, SETTING))
    assert found["speed"] == "150.0 tok/s; 1.4× faster (1.43× plain, ±6%)"
    assert found["rounds"] == ("10, 3.00 tokens each; 20.0 ms: draft 5.0, verify 10.0, else 5.0")
    assert found["model"] == "40 drafted, 20/30 accepted, 1.25 ms each"
    assert found["by position"] == "█ 100%  █ 100%    0%"
    assert found["first token"].startswith("after 0.0")
    assert found["context"] == "310 of 2048 tokens used"
    assert found["sampling"] == "verifier match, temperature 0.8"
    assert details(Meter(), SETTING)[0] == ("details", "come with the first reply")


def test_details_have_no_line_for_a_drafter_that_drafted_nothing():
    meter = a_meter()
    meter.add(Round(0, 0, 0, 1, 0.001, 0.01, 0.02, "suffix", 310, ON))
    found = dict(details(meter, SETTING))
    assert "suffix" not in found
    assert found["model"] == "40 drafted, 20/30 accepted, 1.25 ms each"


def test_figures_saved_with_a_derived_field_are_read():
    turn = ChatTurn("assistant", "Hi")
    saved = codec.encode(some_stats()) | {"plain_tokens_per_second": 70.0}
    reply_record.restore(turn, {"stats": saved})
    assert turn.stats == some_stats()


def test_the_used_context_is_that_of_the_last_reply_whose_server_told_it():
    """One that was stopped may not have come to the event that tells it."""
    chat = OpenChat(Conversation(), ChatRecorder())
    for prompt in (9, 0):
        chat.conversation.say("Hello")
        reply = chat.conversation.answer()
        reply.text, reply.stats = "Hi", dataclasses.replace(some_stats(), prompt_tokens=prompt)
    chat.count_context()
    assert chat.meter.used == 9 + 131


NUMBERS = st.sampled_from([0, 1, 5, -5, 10**30, 10**400, 2**53, 0.0, -1.5, 1e-320, 1e308, "inf"])


@given(
    st.dictionaries(st.sampled_from(sorted(codec.encode(some_stats()))), NUMBERS, max_size=4),
    st.fixed_dictionaries({"factor": NUMBERS, "error": NUMBERS}),
)
def test_figures_of_a_file_that_nobody_measured_are_shown_or_left_out(changed, speedup):
    turn = ChatTurn("assistant", "Hi", end="stop")
    saved = codec.encode(some_stats()) | {"speedup": speedup} | changed
    reply_record.restore(turn, {"stats": saved})
    meter = a_meter(rounds=0)
    if turn.stats is not None:
        meter.finish(turn.stats)
        meter.used = turn.stats.prompt_tokens + turn.stats.emitted
    assert everyday_line(meter, 80)
    assert expert_lines(meter, SETTING, 80)
    assert details(meter, SETTING)
    assert isinstance(turn.caption, str)


@pytest.mark.parametrize("name", ["emitted", "rounds", "accepted", "prompt_tokens"])
def test_a_count_that_no_reply_has_leaves_all_figures_out(name):
    for count in (10**400, 2**53 + 1, -1):
        turn = ChatTurn("assistant", "Hi", end="stop")
        reply_record.restore(turn, {"stats": codec.encode(some_stats()) | {name: count}})
        assert (turn.stats, turn.caption) == (None, "")


@pytest.mark.parametrize(
    ("place", "known"),
    [({}, True), ({"start": 2, "said": 2}, True)]
    + [({name: at}, False) for name in ("start", "said") for at in (-1, 3, 10**18)],
)
def test_where_a_reply_of_a_file_began_is_a_place_in_it_or_not_known(place, known):
    tokens = {"ids": [1, 2], "lengths": [1, 1], "kinds": [0, 0]}
    tokens |= {"origins": ["plain"], "sources": [None]}
    how = codec.encode(How(Sampling(), 10, None)) | place
    turn = ChatTurn("assistant", "Hi", end="stop")
    reply_record.restore(turn, {"tokens": tokens, "how": how})
    assert len(turn.tokens) == 2
    assert (turn.saved_how is not None) == known


def test_the_details_say_what_the_prefix_cache_saved():
    meter = a_meter()
    meter.reading = Reading(553, 553, 512, 12.84)
    assert ("first token", "prompt 553 tokens, 512 of them cached") in details(meter, SETTING)
    assert ("cache", "saved about 12.8 s of reading the prompt") in details(meter, SETTING)
    meter.reading = Reading(9, 9, 4, 0.01)
    assert "cache" not in dict(details(meter, SETTING))


def test_while_a_picture_is_encoded_its_seconds_are_counted():
    meter = Meter()
    assert meter.encoding_seconds is None
    meter.read(Reading(9, 90, 0, encoding=True))
    first = meter.encoding_seconds
    meter.read(Reading(9, 90, 0, encoding=True))
    assert first is not None
    assert meter.encoding_seconds >= first
    meter.read(Reading(80, 90, 0))
    assert meter.encoding_seconds is None


def remote(**changes):
    """A meter after a reply of a server that tells ``changes`` of its speculation."""
    meter = Meter()
    stats = Stats(
        **{
            "prompt_tokens": 5,
            "cached_tokens": 0,
            "emitted": 30,
            "rounds": 0,
            "drafted": 0,
            "verified": 0,
            "accepted": 0,
            "per_position": (),
            "by_drafter": {},
            "prompt_seconds": 0.1,
            "decode_seconds": 1.0,
            "draft_seconds": 0.0,
            "verify_seconds": 0.0,
            "speculation": NOT_REPORTED,
            **changes,
        }
    )
    meter.finish(stats)
    return meter


def test_a_server_that_reports_nothing_is_not_said_to_draft_or_not():
    line = SEPARATOR.join(figure.text for figure in everyday_line(remote(), 80))
    assert line == "30 tok/s · speculation not reported"
    lines = expert_lines(remote(), "of the server T 0.8", 200)
    assert "tok/round" not in SEPARATOR.join(figure.text for figure in lines[0])


def test_rounds_that_a_server_does_not_tell_are_not_shown_as_rounds_without_a_draft():
    meter = Meter()
    meter.add(dataclasses.replace(a_round(speculation=NOT_REPORTED), drafted=0))
    assert meter.tally.emitted
    assert not meter.last_rounds


def test_the_used_context_of_a_server_that_tells_of_the_prompt_last_has_the_prompt():
    meter = a_meter(rounds=1)
    meter.add(dataclasses.replace(a_round(), context_used=0))
    assert meter.used == 310  # what was used before
    meter.finish(some_stats())
    assert meter.used == 9 + 131


def test_acceptance_of_drafted_tokens_is_not_shown_as_that_of_verified_ones():
    meter = remote(drafted=40, accepted=20, rounds=10, speculation=Speculation("on"))
    line = SEPARATOR.join(figure.text for figure in everyday_line(meter, 80))
    assert line == "30 tok/s · accepted 20 of 40 drafted"
