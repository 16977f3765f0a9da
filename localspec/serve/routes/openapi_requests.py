"""JSON schemas of the bodies of requests, for `localspec.serve.routes.openapi`."""

from __future__ import annotations

from localspec.core import settings_schema as settings
from localspec.core.logprobs import MOST_ALTERNATIVES
from localspec.core.sampling_params import LARGEST_BIAS
from localspec.serve.requests.request_fields import MOST_BIASES, MOST_STOPS
from localspec.serve.routes.openapi_shapes import (
    ANY_OBJECT,
    FLAG,
    NAME,
    NULL,
    TEXT,
    Schema,
    array,
    choice,
    either,
    limit,
    record,
    ref,
    setting,
    whole,
)
from localspec.serve.routes.tokens import LARGEST_ID

_SEED = {"type": "integer", "minimum": 0, "maximum": (1 << 64) - 1}
_STOPS = array(NAME, most=MOST_STOPS)
_STOP = either(NAME, _STOPS) | {"description": "texts that end the reply"}
_PARTS = either(TEXT, array(ref("TextPart")))
_TEMPLATE = ANY_OBJECT | {"description": "variables of the model's chat template"}

_SHARED: Schema = {
    "model": TEXT | {"description": "a name of /v1/models; the present model if absent"},
    "temperature": setting(settings.TEMPERATURE),
    "top_k": setting(settings.TOP_K),
    "top_p": setting(settings.TOP_P),
    "min_p": setting(settings.MIN_P),
    "repeat_penalty": setting(settings.REPEAT_PENALTY),
    "presence_penalty": setting(settings.PRESENCE_PENALTY),
    "frequency_penalty": setting(settings.FREQUENCY_PENALTY),
    "logit_bias": {
        "type": "object",
        "propertyNames": {"pattern": "^[0-9]{1,9}$"},
        "additionalProperties": {
            "type": ["number", "null"],
            "minimum": -LARGEST_BIAS,
            "maximum": LARGEST_BIAS,
        },
        "maxProperties": MOST_BIASES,
    },
    "seed": _SEED,
    "stream": FLAG,
    "cache_salt": TEXT | {"description": "keeps what is cached for this request apart"},
    "localspec": ref("Drafting"),
}
"""Fields of all requests for replies."""
_OPENAI: Schema = {
    **_SHARED,
    "n": whole(1, 16),
    "stop": _STOP,
    "stream_options": record({"include_usage": FLAG}),
    "response_format": ref("ResponseFormat"),
    "grammar": TEXT | {"description": "a grammar in GBNF or Lark's syntax"},
    "prediction": either(TEXT, record({"type": choice("content"), "content": _PARTS}, "content")),
    "logprobs_mode": choice("raw", "processed"),
    "prompt_logprobs": whole(0, MOST_ALTERNATIVES),
    "return_token_ids": FLAG,
}
_TOOL_CHOICE = either(
    choice("none", "auto", "required"),
    record({"type": choice("function"), "function": record({"name": NAME}, "name")}, "function"),
)

CHAT = record(
    {
        **_OPENAI,
        "messages": array(ref("ChatMessage"), 1),
        "max_tokens": limit(1),
        "max_completion_tokens": limit(1),
        "logprobs": FLAG,
        "top_logprobs": whole(0, MOST_ALTERNATIVES),
        "tools": array(ref("ChatTool")),
        "tool_choice": _TOOL_CHOICE,
        "parallel_tool_calls": FLAG,
        "reasoning_effort": TEXT,
        "reasoning_format": choice("auto", "none", "deepseek"),
        "chat_template_kwargs": _TEMPLATE,
        "return_progress": FLAG,
    },
    "messages",
)
COMPLETION = record(
    {
        **_OPENAI,
        "prompt": either(TEXT, array(TEXT, 1), array(whole(0), 1), array(array(whole(0), 1), 1)),
        "max_tokens": limit(0),
        "logprobs": whole(0, MOST_ALTERNATIVES),
        "echo": FLAG,
        "best_of": whole(1, 16),
    },
    "prompt",
)
RESPONSE = record(
    {
        **_SHARED,
        "input": either(TEXT, array(ref("InputItem"), 1)),
        "instructions": TEXT,
        "max_output_tokens": whole(1),
        "include": either(TEXT, array(TEXT)),
        "top_logprobs": whole(0, MOST_ALTERNATIVES),
        "text": record({"format": ref("TextFormat")}),
        "reasoning": record({"effort": TEXT}),
        "tools": array(either(ref("ResponseTool"), ref("OthersTool"))),
        "tool_choice": either(
            choice("none", "auto", "required"),
            record({"type": choice("function"), "name": NAME}, "type", "name"),
        ),
        "parallel_tool_calls": FLAG,
        "truncation": choice("auto", "disabled"),
        "metadata": ANY_OBJECT,
        "chat_template_kwargs": _TEMPLATE,
    },
    "input",
)
PROMPT_OF_MESSAGE: Schema = {
    "model": TEXT,
    "messages": array(ref("AnthropicMessage"), 1),
    "system": either(TEXT, array(record({"type": choice("text"), "text": TEXT}, "type"))),
    "tools": array(either(ref("AnthropicTool"), ref("OthersTool"))),
    "tool_choice": record(
        {
            "type": choice("auto", "any", "tool", "none"),
            "name": TEXT,
            "disable_parallel_tool_use": FLAG,
        }
    ),
    "thinking": record({"type": choice("enabled", "adaptive", "between_tools", "disabled")}),
    "output_config": record({"effort": TEXT}),
}
MESSAGE = record(
    {
        **_SHARED,
        **PROMPT_OF_MESSAGE,
        "max_tokens": whole(1),
        "stop_sequences": _STOPS,
    },
    "messages",
    "max_tokens",
)
COUNT = record(PROMPT_OF_MESSAGE, "messages")
_CONVERSATION: Schema = {
    "messages": array(ref("ChatMessage"), 1),
    "tools": array(ref("ChatTool")),
    "tool_choice": _TOOL_CHOICE,
    "reasoning_effort": TEXT,
    "chat_template_kwargs": _TEMPLATE,
}
TOKENIZE = record(
    {
        "model": TEXT,
        "content": TEXT,
        "prompt": TEXT,
        **_CONVERSATION,
        "add_special": FLAG,
        "parse_special": FLAG,
        "with_pieces": FLAG,
        "return_token_strs": FLAG,
    }
) | either(*(record({name: {"not": NULL}}, name) for name in ("content", "prompt", "messages")))
DETOKENIZE = record({"model": TEXT, "tokens": array(whole(0, LARGEST_ID - 1))}, "tokens")
TEMPLATE = record({"model": TEXT, **_CONVERSATION}, "messages")


__all__ = [
    "CHAT",
    "COMPLETION",
    "COUNT",
    "DETOKENIZE",
    "MESSAGE",
    "RESPONSE",
    "TEMPLATE",
    "TOKENIZE",
]
