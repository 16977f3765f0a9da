"""Each setting is declared once: every way to set it takes and refuses the same values."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.cli import flags
from localspec.config import settings as config_settings
from localspec.core import sampler_settings as samplers
from localspec.core import settings_schema as schema
from localspec.core.errors import UsageError
from localspec.core.events import Message
from localspec.core.files import paths
from localspec.core.options import Options
from localspec.core.reply_request import ReplyRequest
from localspec.core.sampling_params import Sampling
from localspec.core.setting_spec import Kind, Scope, names_of


@pytest.fixture(autouse=True)
def _kernels_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCALSPEC_KERNELS", raising=False)  # the suite may run with either


WITH_A_FLAG = tuple(
    spec
    for scope in (Scope.LOAD, Scope.SAMPLING, Scope.REQUEST)
    for spec in schema.of(scope)
    if spec not in {schema.MODEL, schema.SYSTEM}
)


@click.command()
@flags.preset_flag
@flags.model_flags
@flags.sampling_flags
def command(**values):
    flags.sort_flags(None, values)
    return values


def outcome(spec, *arguments, variable=None, toml=None):
    """The value of a setting, or the sentence that refuses it, without the place of its origin."""
    file = paths.config_dir() / "config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(toml or "")
    config_settings.settings.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        if variable is not None:
            patch.setenv(spec.variable, variable)
        try:
            return command.main(list(arguments), standalone_mode=False)[spec.name]
        except UsageError as error:
            sentence, _, place = str(error).partition(" (set by ")
            assert not place or spec.name in place or spec.variable in place
            return f"refused: {sentence}"


def outcomes(spec, text, literal):
    """By each way to set it; ``text`` is typed, ``literal`` is the same in TOML."""
    found = {"variable": outcome(spec, variable=text)}
    if spec.kind is not Kind.SWITCH:  # given, such a flag is true
        found["flag"] = outcome(spec, f"{spec.flag}={text}")
    if spec.in_config:
        found["config"] = outcome(spec, toml=f"{spec.name} = {literal}")
    if spec.in_presets:
        table = f"[presets.x]\n{spec.name} = {literal}"
        found["preset"] = outcome(spec, "--preset", "x", toml=table)
    return found


def values(spec):
    """Values of its kind, in and out of range, and some of none."""
    limits = [x for x in (spec.low, spec.high, spec.smallest) if x is not None]
    near = [x for limit in limits for x in (limit - 1, limit, limit + 1)]
    match spec.kind:
        case Kind.WHOLE:
            own = st.integers(-(1 << 63), (1 << 63) - 1)
            own |= st.sampled_from([int(x) for x in near if abs(x) < 1 << 62] or [0])
        case Kind.NUMBER:
            own = st.floats() | st.sampled_from([float(x) for x in near])
        case Kind.SWITCH:
            own = st.booleans()
        case Kind.NAMES:
            own = st.lists(st.sampled_from(spec.choices), min_size=1, max_size=3).map(",".join)
        case Kind.CHOICE:
            own = st.sampled_from(spec.choices)
        case Kind.LIST:
            own = st.sampled_from(
                [spec.default, "", "top_k;temp", "km", '["a", ":"]', '"x"', "[5]"]
            )
        case Kind.TEXT:
            own = st.from_regex(r"[a-zA-Z]{1,60}", fullmatch=True)
    return own | st.sampled_from(["auto", "many", "1.5.2", "x" * 60])


def literals(value):
    """The text and the TOML of a value."""
    if isinstance(value, bool):
        return (str(value).lower(),) * 2
    if isinstance(value, float) and not math.isfinite(value):
        return str(value), str(value)
    return str(value), json.dumps(value)


@pytest.mark.slow
@pytest.mark.parametrize("spec", WITH_A_FLAG, ids=lambda spec: spec.name)
@settings(max_examples=10)
@given(data=st.data())
def test_every_way_to_set_a_setting_gives_the_same_value_or_the_same_sentence(spec, data):
    found = outcomes(spec, *literals(data.draw(values(spec))))
    assert len(set(found.values())) == 1, found


def built(spec, value):
    """A value as Python's own types read it."""
    if spec.scope is Scope.SAMPLING:
        return getattr(Sampling(**{spec.name: value}), spec.name)
    if spec.scope is Scope.REQUEST:
        return getattr(ReplyRequest(**{spec.name: value}), spec.name)
    if spec.kind is Kind.NAMES and value is not None:
        return ",".join(getattr(Options(**{spec.python_name: names_of(value)}), spec.python_name))
    return getattr(Options(**{spec.python_name: value}), spec.python_name)


@pytest.mark.parametrize("spec", WITH_A_FLAG, ids=lambda spec: spec.name)
@settings(max_examples=15)
@given(data=st.data())
def test_python_takes_the_same_range_with_the_same_sentence(spec, data):
    text, _ = literals(data.draw(values(spec)))
    sentence = None
    try:
        value = spec.parse(text)
    except UsageError as error:
        sentence = str(error)
    if sentence is None:
        assert built(spec, value) == value
    elif " called " in sentence or " between " in sentence:  # other types Python is trusted with
        value = {Kind.WHOLE: int, Kind.NUMBER: float}.get(spec.kind, str)(text)
        with pytest.raises(UsageError) as caught:
            built(spec, value)
        assert str(caught.value) == sentence


@pytest.mark.parametrize("spec", WITH_A_FLAG, ids=lambda spec: spec.name)
def test_the_default_of_a_flag_is_the_default_of_python(spec):
    assert outcome(spec) == built(spec, spec.default) == spec.default
    if spec.scope is Scope.SAMPLING:
        assert getattr(Sampling(), spec.name) == spec.default
    elif spec.scope is Scope.REQUEST:
        assert getattr(ReplyRequest(), spec.name) == spec.default
    else:
        assert getattr(Options(), spec.python_name) == spec.default


def test_every_field_of_the_options_and_of_sampling_is_a_setting():
    fields = {name for kind in (Options, Sampling) for name in kind.__dataclass_fields__}
    named = {s.python_name for s in schema.SETTINGS if s.scope in {Scope.LOAD, Scope.SAMPLING}}
    assert fields == named | {"logit_bias", "remeasure", "save_states", "sees", "smaller"}, (
        "front ends set these"
    )


@pytest.mark.parametrize(
    ("spec", "text", "sentence"),
    [
        (samplers.TEMPERATURE, "hot", "temperature must be a number, not 'hot'"),
        (samplers.TEMPERATURE, "200", "temperature must be between 0 and 100, not 200"),
        (samplers.TEMPERATURE, "1e-9", "temperature must be 0 or at least 1e-06, not 1e-09"),
        (samplers.TOP_K, "-3", "top_k must be at least 0, not -3"),
        (samplers.TOP_P, "nan", "top_p must be between 0 and 1, not nan"),
        (schema.DRAFT_MAX, "many", "draft_max must be a whole number or auto, not 'many'"),
        (schema.MAX_TOKENS, "0", "max_tokens must be at least 1, not 0"),
        (schema.CTX, "9" * 5000, "ctx must be a whole number or auto, not '" + "9" * 39 + "..."),
        (schema.OFFLINE, "perhaps", "offline must be true or false, not 'perhaps'"),
        (
            schema.VERIFIER,
            "hope",
            "no verifier called 'hope'; there are: match, rejection",
        ),
        (samplers.XTC_PROBABILITY, "2", "xtc_probability must be between 0 and 1, not 2"),
        (samplers.MIROSTAT, "3", "mirostat must be between 0 and 2, not 3"),
        (
            samplers.DRY_SEQUENCE_BREAKERS,
            ":",
            'dry_sequence_breakers must be a list of texts in JSON, such as ["\\n", ":"]',
        ),
        (schema.DRAFTER, "off,model", "drafter off cannot be combined with others"),
    ],
)
def test_a_value_is_refused_with_its_range(spec, text, sentence):
    with pytest.raises(UsageError) as caught:
        spec.parse(text)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("spec", "value", "sentence"),
    [
        (schema.SEED, 1.0, "seed must be a whole number or auto, not 1.0"),
        (samplers.TOP_K, 1.5, "top_k must be a whole number, not 1.5"),
        (
            samplers.TEMPERATURE,
            100.0000001,
            "temperature must be between 0 and 100, not 100.0000001",
        ),
    ],
)
def test_a_refused_number_is_shown_as_written(spec, value, sentence):
    with pytest.raises(UsageError) as caught:
        spec.check(value)
    assert str(caught.value) == sentence


def test_lists_may_be_lists_in_toml():
    toml = 'samplers = ["top_k", "temp"]\ndry_sequence_breakers = ["x"]'
    assert outcome(samplers.SAMPLERS, toml=toml) == "top_k,temperature"
    assert outcome(samplers.DRY_SEQUENCE_BREAKERS, toml=toml) == '["x"]'
    assert "must be a list of texts" in outcome(samplers.SAMPLERS, toml="samplers = [1]")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("off", ("off",)),
        ("ngram, model", ("ngram", "model")),
        (["ngram"], ("ngram",)),
        ("auto", None),
        (None, None),
    ],
)
def test_options_take_drafters_as_the_flag_takes_them(given: Any, kept: object) -> None:
    assert Options(drafter=given).drafter == kept


@pytest.mark.parametrize("given", [(), []])
def test_no_drafter_at_all_is_refused_since_it_may_mean_two_things(given: Any) -> None:
    with pytest.raises(UsageError, match="'off' for plain decoding"):
        Options(model="demo", drafter=given)


@pytest.mark.parametrize(
    "given",
    [
        *({"drafter": "of"}, {"drafter": 5}, {"drafter": (5,)}, {"drafter": "off,model"}),
        *({"model": Path("x.gguf")}, {"context": "9"}, {"strict": "no"}, {"verifier": None}),
    ],
)
def test_options_of_a_wrong_type_are_refused_in_a_line(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as refused:
        Options(**given)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"max_tokens": 1.5}, "max_tokens must be a whole number"),
        ({"stop": "local"}, "stop must be a tuple of str"),
        ({"stop": (5,)}, "stop must be a tuple of str"),
        ({"prompt": b"bytes"}, "the prompt must be a text, not bytes"),
        ({"prediction": 5}, "the prediction must be a text, not int"),
        ({"messages": ({"role": "user", "content": "Hi"},)}, "messages must be a tuple of Message"),
        ({"grammar": "start: x"}, "must be a GrammarSpec"),
    ],
)
def test_python_code_that_passes_something_else_is_told_so(fields, said):
    with pytest.raises(UsageError, match=said):
        ReplyRequest(**fields)
    with pytest.raises(UsageError, match="whole number"):
        Sampling(top_k=1.5)
    with pytest.raises(UsageError, match="must be a text, not NoneType"):
        Message("user", None)
    assert ReplyRequest(prompt="x", seed=np.int64(5), max_tokens=np.int32(5))
