"""Named JSON schemas, for `localspec.serve.routes.openapi`: parts of requests, and answers, which
have more fields than are named here, those of OpenAI's and Anthropic's descriptions.
"""

from __future__ import annotations

from localspec.core import settings_schema as settings
from localspec.serve.routes.openapi_shapes import (
    ANY_OBJECT,
    FLAG,
    NAME,
    TEXT,
    Schema,
    array,
    choice,
    either,
    record,
    ref,
    whole,
)

EVENT: Schema = record({"event": TEXT, "data": TEXT}) | {
    "description": "an event of the stream; OpenAPI 3.1 has no form of its own for streams"
}

PARAMETERS: Schema = {
    "type": "object",
    "description": "a JSON schema of an object",
    "properties": {
        "type": {"const": "object"},
        "properties": {
            "type": ["object", "null"],
            "additionalProperties": {"anyOf": [{"type": "object"}, {"const": True}]},
        },
        "required": {"type": ["array", "null"], "items": {"type": "string"}},
    },
}
_FUNCTION: Schema = {
    "name": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,128}$"},
    "description": TEXT,
    "parameters": PARAMETERS,
    "strict": FLAG
    | {"description": "refuse keywords that cannot be followed, do not leave them out"},
}
_CONTENT = either(TEXT, array(ref("TextPart")))
_RESULT = either(TEXT, array(ANY_OBJECT)) | {"description": "parts that are no text are left out"}
_BLOCK = record({"type": choice("text"), "text": TEXT}, "type")
_FILE = record(
    {
        "type": choice("document"),
        "source": record({"type": choice("text"), "data": TEXT}, "type"),
    },
    "type",
    "source",
)
_ARGUMENTS = either(TEXT, ANY_OBJECT) | {"description": "a JSON object, or one as text"}
_USE = record(
    {"type": choice("tool_use"), "id": TEXT, "name": NAME, "input": _ARGUMENTS}, "type", "name"
)
_DONE = record(
    {"type": choice("tool_result"), "tool_use_id": TEXT, "content": _RESULT, "is_error": FLAG},
    "type",
)
_THOUGHT = record(
    {"type": choice("thinking", "redacted_thinking"), "thinking": TEXT, "data": TEXT}, "type"
)
_CALLED = record({"name": NAME, "arguments": _ARGUMENTS}, "name")
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
    "Drafting": record(
        {
            "verifier": choice(*settings.VERIFIERS),
            "drafter": TEXT | {"description": "names separated by commas, or off"},
            "draft_max": either(whole(0, settings.MAX_K), choice("", "auto")),
            "draft_memory": FLAG | {"description": "draft from earlier requests of the client"},
            "origins": FLAG | {"description": "answer where each token came from"},
            "strict": FLAG | {"description": "refuse unless the server computes in strict mode"},
        }
    )
    | {"description": "how this reply is drafted and verified", "additionalProperties": False},
    "TextPart": either(
        record({"type": choice("text", "input_text", "output_text"), "text": TEXT}, "type"),
        record({"type": choice("refusal"), "refusal": TEXT}, "type"),
    ),
    "OthersTool": record(
        {"type": {"type": "string", "not": {"enum": ["function", "custom"]}}}, "type"
    )
    | {"description": "a tool that servers of others run; it has no effect"},
    "ChatMessage": either(
        record(
            {"role": choice("system", "developer", "user"), "content": _CONTENT}, "role", "content"
        ),
        record(
            {
                "role": choice("assistant"),
                "content": either(_CONTENT, {"type": "null"}),
                "reasoning_content": TEXT,
                "tool_calls": array(
                    record(
                        {"id": TEXT, "type": choice("function"), "function": _CALLED}, "function"
                    ),
                    1,
                ),
                "function_call": _CALLED,
            },
            "role",
        )
        | {
            "anyOf": [
                {"required": ["content"]},
                {"required": ["tool_calls"]},
                {"required": ["function_call"]},
            ]
        },
        record(
            {
                "role": choice("tool"),
                "content": either(_RESULT, {"type": "null"}),
                "tool_call_id": TEXT,
                "name": TEXT,
            },
            "role",
            "content",
        ),
        record(
            {
                "role": choice("function"),
                "content": either(_RESULT, {"type": "null"}),
                "name": NAME,
            },
            "role",
            "content",
            "name",
        ),
    ),
    "ChatTool": record(
        {"type": choice("function"), "function": record(_FUNCTION, "name")}, "function"
    ),
    "ResponseTool": record({"type": choice("function"), **_FUNCTION}, "type", "name"),
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
                "content": _CONTENT,
            },
            "role",
            "content",
        ),
        record(
            {
                "type": choice("function_call"),
                "call_id": TEXT,
                "name": NAME,
                "arguments": _ARGUMENTS,
            },
            "type",
            "name",
        ),
        record(
            {"type": choice("function_call_output"), "call_id": TEXT, "output": _RESULT},
            "type",
            "output",
        ),
        record({"type": choice("reasoning"), "summary": array(record({"text": TEXT}))}, "type"),
    ),
    "AnthropicMessage": either(
        record(
            {"role": choice("user"), "content": either(TEXT, array(either(_BLOCK, _FILE, _DONE)))},
            "role",
            "content",
        ),
        record(
            {
                "role": choice("assistant"),
                "content": either(TEXT, array(either(_BLOCK, _FILE, _USE, _THOUGHT))),
            },
            "role",
            "content",
        ),
        record(
            {"role": choice("system"), "content": either(TEXT, array(either(_BLOCK, _FILE)))},
            "role",
            "content",
        ),
    ),
    "AnthropicTool": record(
        {
            "type": choice("custom"),
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


__all__ = ["COMPONENTS", "EVENT"]
