"""Named JSON schemas, for `localspec.serve.routes.openapi`: parts of requests, and answers.

Answers have more fields than are named here: those are of OpenAI's and Anthropic's descriptions.
"""

from __future__ import annotations

from localspec.core import settings_schema as settings
from localspec.serve.routes.openapi_shapes import (
    ANY_OBJECT,
    FLAG,
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


__all__ = ["COMPONENTS", "EVENT"]
