"""JSON schemas of requests and answers, for `localspec.serve.routes.openapi`.

Answers have more fields than are named here: those are of OpenAI's and Anthropic's descriptions.
"""

from __future__ import annotations

from typing import Any

from localspec.core import settings_schema as settings
from localspec.core.logprobs import MOST_ALTERNATIVES
from localspec.core.setting_spec import Kind, SettingSpec

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
ANY_OBJECT: Schema = {"type": "object"}
_NUMBERS = {Kind.NUMBER: "number", Kind.WHOLE: "integer"}


def whole(low: int, high: int | None = None, about: str = "") -> Schema:
    """A whole number between two limits."""
    found: Schema = {"type": "integer", "minimum": low}
    if high is not None:
        found["maximum"] = high
    return found | ({"description": about} if about else {})


def array(items: Schema, least: int = 0) -> Schema:
    """An array."""
    return {"type": "array", "items": items} | ({"minItems": least} if least else {})


def choice(*values: str) -> Schema:
    """One of several texts."""
    return {"type": "string", "enum": list(values)}


def record(properties: Schema, *required: str) -> Schema:
    """An object. Unknown properties are allowed, and told of in the server's log."""
    found: Schema = {"type": "object", "properties": properties}
    return found | ({"required": list(required)} if required else {})


def either(*schemas: Schema) -> Schema:
    """One of several shapes."""
    return {"anyOf": list(schemas)}


EVENT: Schema = record({"event": TEXT, "data": TEXT}) | {
    "description": "an event of the stream; OpenAPI 3.1 has no form of its own for streams"
}


def ref(name: str) -> Schema:
    """A named schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def _setting(spec: SettingSpec[Any]) -> Schema:
    found: Schema = {"type": _NUMBERS[spec.kind], "description": spec.help}
    if spec.low is not None:
        found["minimum"] = spec.low
    if spec.high is not None:
        found["maximum"] = spec.high
    return found


_SEED = {"type": "integer", "minimum": 0, "maximum": (1 << 64) - 1}
_STOP = either(TEXT, array(TEXT)) | {"description": "texts that end the reply"}
_PARTS = either(TEXT, array(ref("TextPart")))
_TEMPLATE = ANY_OBJECT | {"description": "variables of the model's chat template"}

_SHARED: Schema = {
    "model": TEXT | {"description": "a name of /v1/models; the present model if absent"},
    "temperature": _setting(settings.TEMPERATURE),
    "top_k": _setting(settings.TOP_K),
    "top_p": _setting(settings.TOP_P),
    "min_p": _setting(settings.MIN_P),
    "repeat_penalty": _setting(settings.REPEAT_PENALTY),
    "presence_penalty": _setting(settings.PRESENCE_PENALTY),
    "frequency_penalty": _setting(settings.FREQUENCY_PENALTY),
    "logit_bias": {
        "type": "object",
        "propertyNames": {"pattern": "^[0-9]{1,9}$"},
        "additionalProperties": {"type": "number"},
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

CHAT = record(
    {
        **_OPENAI,
        "messages": array(ref("ChatMessage"), 1),
        "max_tokens": whole(1),
        "max_completion_tokens": whole(1),
        "logprobs": FLAG,
        "top_logprobs": whole(0, MOST_ALTERNATIVES),
        "tools": array(ref("ChatTool")),
        "tool_choice": either(
            choice("none", "auto", "required"),
            record(
                {"type": choice("function"), "function": record({"name": TEXT}, "name")}, "function"
            ),
        ),
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
        "max_tokens": whole(0),
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
        "include": array(TEXT),
        "top_logprobs": whole(0, MOST_ALTERNATIVES),
        "text": record({"format": ref("TextFormat")}),
        "reasoning": record({"effort": TEXT}),
        "tools": array(ref("ResponseTool")),
        "tool_choice": either(
            choice("none", "auto", "required"),
            record({"type": choice("function"), "name": TEXT}, "type", "name"),
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
    "system": either(TEXT, array(ref("TextPart"))),
    "tools": array(ref("AnthropicTool")),
    "tool_choice": record(
        {
            "type": choice("auto", "any", "tool", "none"),
            "name": TEXT,
            "disable_parallel_tool_use": FLAG,
        },
        "type",
    ),
    "thinking": record(
        {"type": choice("enabled", "adaptive", "between_tools", "disabled")}, "type"
    ),
    "output_config": record({"effort": TEXT}),
}
MESSAGE = record(
    {**_SHARED, **PROMPT_OF_MESSAGE, "max_tokens": whole(1), "stop_sequences": array(TEXT)},
    "messages",
    "max_tokens",
)
COUNT = record(PROMPT_OF_MESSAGE, "messages")
_CONVERSATION: Schema = {
    "messages": array(ref("ChatMessage"), 1),
    "tools": array(ref("ChatTool")),
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
)
DETOKENIZE = record({"model": TEXT, "tokens": array(whole(0))}, "tokens")
TEMPLATE = record({"model": TEXT, **_CONVERSATION}, "messages")

_FUNCTION: Schema = {
    "name": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,128}$"},
    "description": TEXT,
    "parameters": ANY_OBJECT | {"description": "a JSON schema of an object"},
    "strict": FLAG
    | {"description": "refuse keywords that cannot be followed, do not leave them out"},
}
_USAGE = {"type": "object", "additionalProperties": True}

COMPONENTS: Schema = {
    "Error": record(
        {
            "error": record(
                {
                    "message": TEXT,
                    "type": TEXT,
                    "param": {"type": ["string", "null"]},
                    "code": {"type": ["string", "null"]},
                },
                "message",
                "type",
            )
        },
        "error",
    ),
    "AnthropicError": record(
        {
            "type": choice("error"),
            "error": record({"type": TEXT, "message": TEXT}, "type", "message"),
        },
        "type",
        "error",
    ),
    "Drafting": {
        "type": "object",
        "description": "how this reply is drafted and verified",
        "properties": {
            "verifier": choice(*settings.VERIFIERS),
            "drafter": TEXT | {"description": "names separated by commas, or off"},
            "draft_max": whole(0, settings.MAX_K),
            "draft_memory": FLAG | {"description": "draft from earlier requests of the client"},
            "origins": FLAG | {"description": "answer where each token came from"},
        },
    },
    "TextPart": record({"type": choice("text"), "text": TEXT}, "type", "text"),
    "ChatMessage": record(
        {
            "role": choice("system", "developer", "user", "assistant", "tool"),
            "content": either(TEXT, array(ref("TextPart")), {"type": "null"}),
            "reasoning_content": TEXT,
            "tool_calls": array(
                record(
                    {
                        "id": TEXT,
                        "type": choice("function"),
                        "function": record({"name": TEXT, "arguments": TEXT}, "name"),
                    },
                    "function",
                )
            ),
            "tool_call_id": TEXT,
        },
        "role",
    ),
    "ChatTool": record(
        {"type": choice("function"), "function": record(_FUNCTION, "name")}, "type", "function"
    ),
    "ResponseTool": record({"type": TEXT, **_FUNCTION}, "type"),
    "ResponseFormat": record(
        {
            "type": choice("text", "json_object", "json_schema"),
            "json_schema": record({"name": TEXT, "schema": ANY_OBJECT}),
        },
        "type",
    ),
    "TextFormat": record(
        {
            "type": choice("text", "json_object", "json_schema"),
            "name": TEXT,
            "schema": ANY_OBJECT,
        },
        "type",
    ),
    "InputItem": either(
        record(
            {
                "type": choice("message"),
                "role": choice("user", "assistant", "system", "developer"),
                "content": either(
                    TEXT,
                    array(
                        record(
                            {"type": choice("input_text", "output_text"), "text": TEXT},
                            "type",
                            "text",
                        )
                    ),
                ),
            },
            "role",
            "content",
        ),
        record(
            {"type": choice("function_call"), "call_id": TEXT, "name": TEXT, "arguments": TEXT},
            "type",
            "call_id",
            "name",
            "arguments",
        ),
        record(
            {"type": choice("function_call_output"), "call_id": TEXT, "output": TEXT},
            "type",
            "call_id",
            "output",
        ),
        record({"type": choice("reasoning"), "summary": array(record({"text": TEXT}))}, "type"),
    ),
    "AnthropicMessage": record(
        {
            "role": choice("user", "assistant"),
            "content": either(
                TEXT,
                array(
                    either(
                        ref("TextPart"),
                        record(
                            {
                                "type": choice("tool_use"),
                                "id": TEXT,
                                "name": TEXT,
                                "input": ANY_OBJECT,
                            },
                            "type",
                            "id",
                            "name",
                            "input",
                        ),
                        record(
                            {
                                "type": choice("tool_result"),
                                "tool_use_id": TEXT,
                                "content": TEXT,
                                "is_error": FLAG,
                            },
                            "type",
                            "tool_use_id",
                        ),
                        record({"type": choice("thinking"), "thinking": TEXT}, "type"),
                    )
                ),
            ),
        },
        "role",
        "content",
    ),
    "AnthropicTool": record(
        {
            "name": _FUNCTION["name"],
            "description": TEXT,
            "input_schema": _FUNCTION["parameters"],
            "strict": FLAG,
        },
        "name",
        "input_schema",
    ),
    "ChatCompletion": record(
        {
            "id": TEXT,
            "object": choice("chat.completion"),
            "choices": array(ANY_OBJECT, 1),
            "usage": _USAGE,
        },
        "id",
        "object",
        "choices",
        "usage",
    ),
    "Completion": record(
        {
            "id": TEXT,
            "object": choice("text_completion"),
            "choices": array(ANY_OBJECT, 1),
            "usage": _USAGE,
        },
        "id",
        "object",
        "choices",
        "usage",
    ),
    "Response": record(
        {
            "id": TEXT,
            "object": choice("response"),
            "status": choice("completed", "incomplete", "failed", "in_progress"),
            "output": array(ANY_OBJECT),
        },
        "id",
        "object",
        "status",
        "output",
    ),
    "Message": record(
        {
            "id": TEXT,
            "type": choice("message"),
            "role": choice("assistant"),
            "content": array(ANY_OBJECT),
            "stop_reason": TEXT,
            "usage": _USAGE,
        },
        "id",
        "type",
        "role",
        "content",
        "stop_reason",
        "usage",
    ),
    "Count": record({"input_tokens": whole(0)}, "input_tokens"),
    "Tokens": record({"tokens": {"type": "array"}, "count": whole(0)}, "tokens"),
    "Text": record({"content": TEXT}, "content"),
    "Prompt": record({"prompt": TEXT}, "prompt"),
    "Models": record({"object": choice("list"), "data": array(ref("Model"))}, "object", "data"),
    "Model": record({"id": TEXT, "object": choice("model")}, "id", "object"),
    "Object": ANY_OBJECT,
    "Objects": array(ANY_OBJECT),
}

__all__ = [
    "ANY_OBJECT",
    "CHAT",
    "COMPLETION",
    "COMPONENTS",
    "EVENT",
    "COUNT",
    "DETOKENIZE",
    "MESSAGE",
    "RESPONSE",
    "TEMPLATE",
    "TEXT",
    "TOKENIZE",
    "Schema",
    "ref",
]
