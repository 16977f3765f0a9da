"""/v1/completions and the endpoints about tokens, on a fake engine."""

import collections
import json

import pytest
from fake_serving import FakeEngine

from localspec.core.emitted import TokenLogprob, TokenLogprobs
from localspec.core.errors import UsageError
from localspec.serve.replies.logprob_shapes import TextLogprobs, vllm_prompt

PATH = "/v1/completions"


async def test_a_text_is_continued_by_sixteen_tokens_unless_asked_otherwise(world):
    answer = await world.client.post(PATH, json={"prompt": "Once"})
    assert answer.json()["object"] == "text_completion"
    assert answer.json()["choices"][0]["text"] == "Hello from the fake engine."
    (request,) = world.requests
    assert (request.prompt, request.max_tokens) == ("Once", 16)


@pytest.mark.parametrize(
    ("prompt", "texts", "tokens"),
    [
        ("a b", ["a b"], [None]),
        (["a", "b"], ["a", "b"], [None, None]),
        ([5, 6], [None], [(5, 6)]),
        ([[5, 6], [7]], [None, None], [(5, 6), (7,)]),
    ],
)
async def test_prompts_are_texts_or_token_ids_one_or_several(world, prompt, texts, tokens):
    answer = await world.client.post(PATH, json={"prompt": prompt})
    assert len(answer.json()["choices"]) == len(texts)
    assert [request.prompt for request in world.requests] == texts
    assert [request.prompt_tokens for request in world.requests] == tokens


@pytest.mark.parametrize(
    "prompt", [None, 5, [], [[]], [1, "a"], [[1], "a"], {"a": 1}, [-1], [1 << 40], [True]]
)
async def test_any_other_prompt_is_refused(world, prompt):
    answer = await world.client.post(PATH, json={"prompt": prompt})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "prompt"


async def test_echo_with_logprobs_scores_the_prompt_as_evaluations_need_it(world):
    asked = {"prompt": [5, 6, 7], "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}
    choice = (await world.client.post(PATH, json=asked)).json()["choices"][0]
    shape = choice["logprobs"]
    assert shape["token_logprobs"] == [None, -0.5, -0.5, -0.5]
    assert shape["tokens"] == ["<5>", "<6>", "<7>", "Hello"]
    assert shape["top_logprobs"][0] is None
    assert shape["top_logprobs"][1] == {"t0": -1.0, "p1": -0.5}
    assert shape["text_offset"] == [0, 3, 6, 9]
    assert choice["text"] == "<5><6><7>Hello"
    assert world.requests[0].prompt_logprobs == 1
    assert "prompt_logprobs" not in choice


def test_offsets_count_characters_where_several_tokens_make_one():
    def place(token, data):
        chosen = TokenLogprob(token, data.decode("utf-8", "surrogateescape"), -0.5)
        return TokenLogprobs(chosen, (TokenLogprob(9, "\udc9f", -1.0), chosen))

    pieces = [b"a", b"\xf0", b"\x9f\x98", b"\x80", b" b", "é".encode(), b"\xff", b"c"]
    shape = TextLogprobs(2)
    places = [place(i, piece) for i, piece in enumerate(pieces)]
    found = [shape.of(places[:2], pieces[:2]), shape.of(places[2:], pieces[2:])]
    offsets = [offset for part in found for offset in part["text_offset"]]
    text = b"".join(pieces).decode("utf-8", "replace")
    assert offsets == [0, 1, 1, 1, 2, 4, 5, 6]
    assert text[2:] == " bé\ufffdc"
    assert found[1]["tokens"] == ["bytes:\\x9f\\x98", "bytes:\\x80", " b", "é", "bytes:\\xff", "c"]
    assert found[0]["top_logprobs"][1] == {"bytes:\\x9f": -1.0, "bytes:\\xf0": -0.5}


async def test_choices_of_several_prompts_come_in_order(world):
    asked = {"prompt": ["a", "b"], "n": 2, "seed": 5}
    answer = (await world.client.post(PATH, json=asked)).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert [choice["localspec"]["seed"] for choice in answer["choices"]] == [5, 6, 5, 6]
    asked = sorted((r.prompt, r.seed) for r in world.requests)
    assert asked == [("a", 5), ("a", 6), ("b", 5), ("b", 6)]
    assert answer["usage"]["prompt_tokens"] == 8


async def test_the_first_choice_of_each_prompt_reads_it_for_the_others(world, monkeypatch):
    handed_over, reply = [], FakeEngine.reply

    def noted(engine, request):
        handed_over.append((request.prompt, world.service.metrics.emitted > 0))
        return reply(engine, request)

    monkeypatch.setattr(FakeEngine, "reply", noted)
    answer = (await world.client.post(PATH, json={"prompt": ["a", "b", "a"], "n": 3})).json()
    assert handed_over[:3] == [("a", False), ("b", False), ("a", False)]
    assert sorted(handed_over[3:]) == [("a", True)] * 4 + [("b", True)] * 2
    assert [choice["index"] for choice in answer["choices"]] == [*range(9)]
    assert answer["usage"]["completion_tokens"] == 9 * len(world.words)


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        (PATH, {"prompt": "a b", "echo": True}),
        (PATH, {"prompt": "a b", "return_token_ids": True}),
        ("/infill", {"input_prefix": "a", "input_suffix": "b", "response_fields": ["prompt"]}),
    ],
)
async def test_a_repeated_prompt_is_split_for_the_owner_of_its_reply(
    make_world, monkeypatch, path, asked
):
    """A bare salt would be another client's turn, and another one's texts."""
    split, tokenize = [], FakeEngine.tokenize

    async def noted(engine, request, **how):
        split.append(request.owner)
        return await tokenize(engine, request, **how)

    monkeypatch.setattr(FakeEngine, "tokenize", noted)
    world = await make_world()
    assert (await world.client.post(path, json=asked | {"cache_salt": "s"})).status_code == 200
    assert split == [request.owner for request in world.requests]
    assert split != ["s"]


async def test_a_stream_says_what_the_whole_answer_says(world):
    asked = {"prompt": "x", "stream": True, "echo": True, "logprobs": 0, "return_token_ids": True}
    text = (await world.client.post(PATH, json=asked)).text
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    choices = [json.loads(line)["choices"][0] for line in lines]
    assert "".join(choice["text"] for choice in choices) == "xHello from the fake engine."
    assert [t for choice in choices for t in choice.get("token_ids", ())] == [0, 1, 2, 3, 4, 5]
    offsets = [o for c in choices if c["logprobs"] for o in c["logprobs"]["text_offset"]]
    assert offsets == sorted(offsets)
    assert choices[-1]["finish_reason"] == "stop"


async def test_ids_of_the_prompt_come_on_request(world):
    asked = {"prompt": [5, 6], "return_token_ids": True}
    choice = (await world.client.post(PATH, json=asked)).json()["choices"][0]
    assert choice["prompt_token_ids"] == [5, 6]
    assert choice["token_ids"] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("echo", [False, True])
async def test_the_first_chunk_of_each_choice_has_the_ids_of_its_prompt(world, echo):
    asked = {"prompt": [[5, 6], [7]], "n": 2, "return_token_ids": True, "echo": echo}
    text = (await world.client.post(PATH, json=asked | {"stream": True})).text
    lines = [line.removeprefix("data: ") for line in text.split("\n\n")[:-2]]
    first = {}
    for line in lines:
        (choice,) = json.loads(line)["choices"]
        told = choice.get("prompt_token_ids")
        assert told is None or choice["index"] not in first
        first.setdefault(choice["index"], told)
    assert first == {0: [5, 6], 1: [5, 6], 2: [7], 3: [7]}


@pytest.mark.parametrize("repeated", ["return_token_ids", "echo"])
async def test_what_the_engine_refuses_has_its_status_though_the_prompt_is_repeated(
    world, repeated
):
    world.error = UsageError("no")
    asked = {"prompt": [5, 6], repeated: True, "stream": True}
    assert (await world.client.post(PATH, json=asked)).status_code == 400


@pytest.mark.parametrize("stream", [False, True])
async def test_each_choice_begins_with_the_prompt_that_is_repeated(world, stream):
    asked = {"prompt": ["x", "y"], "n": 2, "echo": True, "stream": stream}
    answer = await world.client.post(PATH, json=asked)
    told = answer.text.split("\n\n")[:-2] if stream else [answer.text]
    said = collections.defaultdict(str)
    for line in told:
        for choice in json.loads(line.removeprefix("data: "))["choices"]:
            said[choice["index"]] += choice["text"]
    whole = "Hello from the fake engine."
    assert said == {0: f"x{whole}", 1: f"x{whole}", 2: f"y{whole}", 3: f"y{whole}"}


async def test_prompt_logprobs_come_in_vllms_shape(world):
    asked = {"prompt": [5, 6], "prompt_logprobs": 1}
    choice = (await world.client.post(PATH, json=asked)).json()["choices"][0]
    first, second = choice["prompt_logprobs"]
    assert first is None
    assert second["1"] == {"logprob": -0.5, "rank": None, "decoded_token": "p1"}
    assert second["50"]["rank"] == 1


@pytest.mark.parametrize(("wanted", "found"), [(0, 1), (1, 2), (3, 4)])
async def test_prompt_logprobs_have_their_own_number_beside_echo(world, wanted, found):
    asked = {"prompt": [5, 6], "echo": True, "logprobs": 3, "prompt_logprobs": wanted}
    choice = (await world.client.post(PATH, json=asked)).json()["choices"][0]
    assert len(choice["prompt_logprobs"][1]) == found
    assert len(choice["logprobs"]["top_logprobs"][1]) == 4


def test_the_chosen_token_keeps_its_rank_beyond_the_alternatives_that_are_wanted():
    top = tuple(TokenLogprob(i, str(i), -1.0 - i) for i in range(4))
    (place,) = vllm_prompt([TokenLogprobs(top[2], top)], 1)
    assert {token: found["rank"] for token, found in place.items()} == {"0": 1, "2": 3}


async def test_progress_of_a_prompt_is_told_at_completions_too(world):
    asked = {"prompt": ["a", "b"], "return_progress": True, "stream": True}
    text = (await world.client.post(PATH, json=asked)).text
    lines = [line.removeprefix("data: ") for line in text.split("\n\n")[:-2]]
    told = [chunk for line in lines if "prompt_progress" in (chunk := json.loads(line))]
    assert sorted(chunk["choices"][0]["index"] for chunk in told) == [0, 1]
    assert told[0]["prompt_progress"] == {"total": 4, "cache": 0, "processed": 4}
    assert told[0]["choices"][0]["text"] == ""


async def test_more_token_ids_than_the_context_holds_do_not_reach_the_engine(world):
    await world.slots.load()
    answer = await world.client.post(PATH, json={"prompt": [1] * 513})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert answer.json()["error"]["param"] == "prompt"
    assert not world.requests


async def test_too_many_prompts_are_refused(world):
    answer = await world.client.post(PATH, json={"prompt": ["a"] * 129})
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ({"content": "a b"}, {"tokens": [0, 1], "count": 2}),
        ({"prompt": "a b"}, {"tokens": [0, 1], "count": 2}),
        ({"messages": [{"role": "user", "content": "a"}]}, {"tokens": [0], "count": 1}),
        (
            {"content": "a", "with_pieces": True},
            {"tokens": [{"id": 0, "piece": "<0>"}], "count": 1},
        ),
        (
            {"prompt": "a", "return_token_strs": True},
            {"tokens": [0], "count": 1, "token_strs": ["<0>"]},
        ),
    ],
)
async def test_texts_and_conversations_are_tokenized(world, asked, answer):
    found = (await world.client.post("/tokenize", json=asked)).json()
    assert found == answer | {"max_model_len": 512}


async def test_the_tokens_that_begin_and_end_a_text_are_told(world):
    found = (await world.client.get("/tokenizer_info")).json()
    assert found == {"bos_token": None, "eos_token": "</s>", "add_bos_token": False}


async def test_tokens_become_text_again(world):
    found = await world.client.post("/detokenize", json={"tokens": [5, 6]})
    assert found.json()["content"] == "<5><6>"
    for wrong in ([-1], ["a"], [1.5], "a", [1 << 40]):
        found = await world.client.post("/detokenize", json={"tokens": wrong})
        assert found.status_code == 400


async def test_the_chat_template_is_applied_on_request(world):
    asked = {"messages": [{"role": "user", "content": "a b"}]}
    assert (await world.client.post("/apply-template", json=asked)).json() == {"prompt": "<0><1>"}
