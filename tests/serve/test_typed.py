"""Types of requests: what they read, and our words for what they refuse."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from localspec.core import sampler_settings as samplers
from localspec.core import settings_schema as schema
from localspec.serve.http.errors import ApiError
from localspec.serve.http.typed import Body, Fields, checked, read
from localspec.serve.http.wording import REFUSAL, FieldError


class Dog(Fields, tag_field="kind", tag="dog"):
    name: Annotated[str, Meta(min_length=1)]


class Cat(Fields, tag_field="kind", tag="cat"):
    lives: Annotated[int, Meta(ge=1, le=9)] | None = None


class Strict(Fields, forbid_unknown_fields=True):
    on: bool | None = None


class Odd(Fields):
    n: int

    def __post_init__(self) -> None:
        if not self.n % 2:
            raise FieldError("n", "must be odd")


class House(Body, kw_only=True):
    without_effect = ("garden",)

    pets: Annotated[list[Dog | Cat], Meta(min_length=2)] | None = None
    pet: Annotated[Dog | Cat, Meta(extra={REFUSAL: "must be a pet"})] | None = None
    size: float | None = None
    colour: Literal["red", "blue"] | None = None
    one: Literal["one"] | None = None
    door: str | list[str] | None = None
    strict: Strict | None = None
    odd: Odd | None = None
    rooms: dict[str, Annotated[int, Meta(ge=0)]] | None = None
    floors: Annotated[list[int], Meta(max_length=2)] | None = None
    code: Annotated[str, Meta(max_length=3)] | None = None


@pytest.mark.parametrize(
    ("given", "place", "said"),
    [
        ({"size": "big"}, "size", "size must be a number, not a string"),
        ({"size": True}, "size", "size must be a number, not a boolean"),
        ({"size": 10**400}, "size", "size is a number of an impossible size"),
        ({"colour": "green"}, "colour", "colour must be one of blue, red"),
        ({"colour": 1}, "colour", "colour must be a string, not an integer"),
        ({"one": "two"}, "one", "one must be one"),
        ({"door": 1}, "door", "door must be a string or an array, not an integer"),
        ({"door": ["a", {}]}, "door[1]", "door[1] must be a string, not an object"),
        ({"door": [None]}, "door[0]", "door[0] must be a string, not null"),
        ({"pets": {}}, "pets", "pets must be an array, not an object"),
        ({"pets": []}, "pets", "pets must have at least 2 items"),
        ({"pets": [1, 2]}, "pets[0]", "pets[0] must be an object, not an integer"),
        ({"pets": [{}, {}]}, "pets[0].kind", "pets[0].kind is missing"),
        ({"pets": [{"kind": "cow"}, 1]}, "pets[0].kind", "pets[0].kind must be one of dog, cat"),
        (
            {"pets": [{"kind": []}, 1]},
            "pets[0].kind",
            "pets[0].kind must be a string, not an array",
        ),
        ({"pet": {"kind": "cow"}}, "pet.kind", "pet.kind must be a pet"),
        ({"pet": {"kind": "dog"}}, "pet.name", "pet.name is missing"),
        ({"pet": {"kind": "dog", "name": None}}, "pet.name", "pet.name is missing"),
        ({"pet": {"kind": "dog", "name": ""}}, "pet.name", "pet.name must not be empty"),
        ({"pet": {"kind": "cat", "lives": 0}}, "pet.lives", "pet.lives must be at least 1"),
        ({"pet": {"kind": "cat", "lives": 10}}, "pet.lives", "pet.lives must be at most 9"),
        ({"pet": {"kind": "cat", "lives": 1.5}}, "pet.lives", "pet.lives must be an integer, not "),
        ({"strict": {"off": 1}}, "strict.off", "strict.off is no field of strict"),
        ({"strict": {"a` - at `$.pets[7].b": 1}}, "strict.a` - at `$.pets[7].b", "strict.a` - at"),
        ({"strict": {"x" * 5000: 1}}, f"strict.{'x' * 40}...", f"strict.{'x' * 40}... is no field"),
        ({"odd": {"n": 2}}, "odd.n", "odd.n must be odd"),
        ({"rooms": {"a": -1}}, "rooms[...]", "rooms[...] must be at least 0"),
        ({"rooms": {"a": 0.5}}, "rooms[...]", "rooms[...] must be an integer, not a number"),
        ({"floors": [1, 2, 3]}, "floors", "floors has 3 items; 2 is the most"),
        ({"code": "abcd"}, "code", "code has 4 characters; 3 is the most"),
    ],
)
def test_what_is_wrong_is_said_in_our_words_with_its_place(given, place, said):
    with pytest.raises(ApiError) as caught:
        read(House, given)
    assert caught.value.status == 400
    assert caught.value.param == place
    assert caught.value.message.startswith(said)


def test_null_is_absent_and_whole_numbers_may_have_a_point():
    assert read(House, {"size": None, "pets": None}) == House()
    given: dict[str, Any] = {"pet": {"kind": "cat", "lives": 3.0}, "floors": [1.0, 2], "size": 1}
    found = read(House, given)
    assert found.pet == Cat(lives=3)
    assert found.floors == [1, 2]
    assert type(found.size) is float


def test_names_without_effect_are_those_that_are_not_declared():
    given = {"size": 1, "garden": True, "pool": 1, "colour": None}
    assert read(House, given).ignored(given) == ["pool"]


def test_those_in_an_object_are_named_with_their_place_and_those_in_arrays_are_not():
    given = {"pet": {"kind": "cat", "lives": 3, "name": "a"}, "odd": {"n": 1, "pool": None}}
    assert read(House, given).ignored(given) == ["pet.name", "odd.pool"]
    given = {"pets": [{"kind": "cat", "name": "a"}] * 2, "rooms": {"pool": 1}}
    assert read(House, given).ignored(given) == []


@pytest.mark.parametrize(
    ("spec", "value", "found"),
    [
        (samplers.TOP_K, 5.0, 5),
        (samplers.TEMPERATURE, 1, 1.0),
        (schema.DRAFT_MAX, "auto", None),
        (schema.SEED, None, None),
    ],
)
def test_a_setting_is_read_by_its_row(spec, value, found):
    assert checked(spec.name, spec, value) == found


def test_a_refused_setting_is_named_as_the_request_names_it():
    said = "^repetition_penalty must be a number, not 'x'$"
    with pytest.raises(ApiError, match=said) as caught:
        checked("repetition_penalty", samplers.REPEAT_PENALTY, "x")
    assert caught.value.param == "repetition_penalty"
    with pytest.raises(ApiError, match=r"^draft_max must be between 0 and 62, not 63$") as caught:
        checked("localspec.draft_max", schema.DRAFT_MAX, 63)
    assert caught.value.param == "localspec.draft_max"


class Ids(Body):
    ids: list[int]


def test_an_array_of_numbers_with_points_is_read_at_once_and_too_many_fields_are_refused():
    assert read(Ids, {"ids": [1.0, 2, 3.0] * 1000}).ids == [1, 2, 3] * 1000
    with pytest.raises(ApiError, match=r"^ids\[1\] must be an integer, not a number$"):
        read(Ids, {"ids": [1.0, 1.5]})

    class Rows(Body):
        rows: list[Odd]

    with pytest.raises(ApiError, match="write 1, not 1"):
        read(Rows, {"rows": [{"n": 1.0} for _ in range(40)]})
