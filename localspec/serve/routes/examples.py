"""Bodies of requests with most of their fields, for `localspec.serve.routes.openapi`."""

from __future__ import annotations

from typing import Any

_PLACE = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "unit": {"enum": ["c", "f"]},
        "days": {"type": "array", "items": {"type": "integer", "minimum": 0}, "maxItems": 3},
    },
    "required": ["city"],
}
_FUNCTION: dict[str, Any] = {
    "name": "weather",
    "description": "The weather of a place.",
    "parameters": _PLACE,
}
_SAMPLING = {
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 40,
    "min_p": 0.05,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "repeat_penalty": 1.1,
    "logit_bias": {"17": -5.0},
    "seed": 7,
    "stream": False,
    "localspec": {"verifier": "match", "draft_max": 4, "origins": True},
}
_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Rome"}'},
}
CHAT: dict[str, Any] = {
    **_SAMPLING,
    "model": "demo",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "How is Rome?"}]},
        {"role": "assistant", "content": "", "reasoning_content": "Hm.", "tool_calls": [_CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ],
    "max_tokens": 8,
    "n": 1,
    "stop": ["\n\n"],
    "tools": [{"type": "function", "function": _FUNCTION}],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "logprobs": True,
    "top_logprobs": 2,
    "reasoning_effort": "low",
    "chat_template_kwargs": {},
    "stream_options": {"include_usage": True},
    "response_format": {"type": "text"},
    "prediction": {"type": "content", "content": "Rome is"},
    "return_token_ids": True,
}
COMPLETION: dict[str, Any] = {
    **_SAMPLING,
    "model": "demo",
    "prompt": ["Hello", "Rome is"],
    "max_tokens": 4,
    "n": 1,
    "echo": True,
    "logprobs": 2,
    "stop": ["\n\n"],
}
EMBEDDINGS: dict[str, Any] = {
    "input": ["one", "two"],
    "encoding_format": "float",
    "dimensions": 4,
    "user": "me",
}
NATIVE_EMBEDDING: dict[str, Any] = {"content": "one"}
RERANK: dict[str, Any] = {
    "query": "What is a panda?",
    "documents": ["hi", {"text": "It is a bear."}],
    "top_n": 1,
    "return_documents": True,
}
INFILL: dict[str, Any] = {
    **_SAMPLING,
    "input_prefix": "def add(a, b):\n    ",
    "input_suffix": "\n\nprint(add(1, 2))\n",
    "input_extra": [{"filename": "other.py", "text": "def sub(a, b):\n    return a - b\n"}],
    "prompt": "ret",
    "n_predict": 8,
    "n_indent": 4,
    "t_max_prompt_ms": 5000,
    "t_max_predict_ms": 1000,
    "samplers": ["top_k", "top_p", "infill"],
    "stop": ["\n\n"],
    "id_slot": 0,
    "cache_prompt": True,
    "response_fields": ["content", "timings/prompt_n", "stop_type"],
    "return_tokens": True,
    "n_probs": 0,
}
RESPONSE: dict[str, Any] = {
    **_SAMPLING,
    "model": "demo",
    "instructions": "Be brief.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "How is Rome?"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {
            "type": "function_call",
            "call_id": "call_1",
            "name": "weather",
            "arguments": '{"city": "Rome"}',
        },
        {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
    ],
    "max_output_tokens": 8,
    "include": ["message.output_text.logprobs"],
    "top_logprobs": 2,
    "text": {"format": {"type": "text"}},
    "reasoning": {"effort": "low"},
    "tools": [{"type": "function", **_FUNCTION, "strict": False}],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "truncation": "auto",
    "metadata": {"a": "b"},
}
COUNT: dict[str, Any] = {
    "model": "demo",
    "system": [{"type": "text", "text": "Be brief."}],
    "messages": [
        {"role": "user", "content": "How is Rome?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": ""},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}],
        },
    ],
    "tools": [{"name": "weather", "description": "The weather.", "input_schema": _PLACE}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": False},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "output_config": {"effort": "low"},
}
MESSAGE: dict[str, Any] = {**_SAMPLING, **COUNT, "max_tokens": 8, "stop_sequences": ["\n\n"]}
TOKENIZE: dict[str, Any] = {"model": "demo", "content": "Hello", "with_pieces": True}
DETOKENIZE: dict[str, Any] = {"model": "demo", "tokens": [17, 300]}
TEMPLATE: dict[str, Any] = {
    "model": "demo",
    "messages": CHAT["messages"],
    "tools": CHAT["tools"],
    "chat_template_kwargs": {"enable_thinking": False},
}
NATIVE: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Hello"}],
    "sampling": {"temperature": 0.5},
    "seed": 7,
    "max_tokens": 4,
    "stop": ["\n\n"],
    "logprobs": 1,
    "markers": True,
}
EXAMINE: dict[str, Any] = {
    "request": {"messages": [{"role": "user", "content": "Hello"}], "seed": 7, "max_tokens": 4},
    "tokens": [17],
    "rival": 18,
}
_OPTIONS = {
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 40,
    "min_p": 0.05,
    "repeat_penalty": 1.1,
    "seed": 7,
    "stop": ["\n\n"],
    "num_predict": 8,
    "num_ctx": 4096,
    "mirostat_tau": 5.0,
}
OLLAMA_CHAT: dict[str, Any] = {
    "model": "demo",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "How is Rome?"},
        {
            "role": "assistant",
            "content": "",
            "thinking": "Hm.",
            "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Rome"}}}],
        },
        {"role": "tool", "tool_name": "weather", "content": "sunny"},
    ],
    "tools": [{"type": "function", "function": _FUNCTION}],
    "options": _OPTIONS,
    "stream": False,
    "think": False,
    "keep_alive": "5m",
    "logprobs": True,
    "top_logprobs": 2,
}
OLLAMA_GENERATE: dict[str, Any] = {
    "model": "demo",
    "prompt": "How is Rome?",
    "system": "Be brief.",
    "format": "json",
    "options": _OPTIONS,
    "stream": False,
    "raw": False,
    "context": [],
    "keep_alive": 300,
}
OLLAMA_SHOW: dict[str, Any] = {"model": "demo", "verbose": False}
OLLAMA_EMBED: dict[str, Any] = {"model": "nomic", "input": ["one", "two"], "dimensions": 4}
OLLAMA_PROMPT: dict[str, Any] = {"model": "nomic", "prompt": "one"}
