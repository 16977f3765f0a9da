"""Fields of llama-server, vLLM, OpenAI, Ollama and LM Studio that requests may have and this server
does not: refused where they would change the answer, else named in a notice of the reply.

A field that a request declares by itself counts as declared, whatever stands here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localspec.serve.http.typed import Foreign

NO_SAMPLER = "localspec has no such sampler; leave it out"
_STOP = "name texts in stop instead"
_BIAS = "give tokens a logit_bias of -100 instead"
_TEMPLATE = "the chat template is the model's own; chat_template_kwargs sets its variables"
_CONTINUED = "leave it out; a last message of the assistant is continued by itself"
_FUNCTIONS = "use tools and tool_choice instead"
_TIME = "set max_tokens, or close the connection when the time is over"
_OLLAMA = "Ollama's fields belong to /api/chat; use the field of OpenAI's interface"
_COMPLETION = "use /v1/completions for texts without a chat template"
_LENGTH = "vectors have the length 1"
_SCORES = "scores are the model's own"
_INFILL = "use /infill, or suffix in /v1/completions, for text at a cursor"


def _continues(given: Mapping[str, Any]) -> bool:
    """Whether a request asks, as vLLM has it, that its last message be continued, and that is one
    of the assistant.
    """
    messages = given.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    said = isinstance(last, dict) and last.get("role") == "assistant"
    return said and given.get("continue_final_message") is True


REFUSED: dict[str, Foreign] = {
    # vLLM
    "ignore_eos": Foreign("give the end tokens a logit_bias of -100 instead", (False,)),
    "min_tokens": Foreign("give the end tokens a logit_bias of -100 instead", (0,)),
    "stop_token_ids": Foreign(_STOP, ([],)),
    "bad_words": Foreign(_BIAS, ([],)),
    "allowed_token_ids": Foreign("use a grammar, or logit_bias", ([],)),
    "truncate_prompt_tokens": Foreign("shorten the prompt; /tokenize counts its tokens"),
    "include_stop_str_in_output": Foreign("append the stop text yourself", (False,)),
    "add_generation_prompt": Foreign(_CONTINUED, (True,), (False,), _continues),
    "continue_final_message": Foreign(_CONTINUED, (False,), (True,), _continues),
    "chat_template": Foreign(_TEMPLATE, ("",)),
    "documents": Foreign("put the documents into a message", ([],)),
    "use_beam_search": Foreign("localspec samples, with drafts; leave it out", (False,)),
    "length_penalty": Foreign("it belongs to beam search; leave it out", (1,)),
    "early_stopping": Foreign("it belongs to beam search; leave it out", (False,)),
    "logits_processors": Foreign("use logit_bias or a grammar", ([],)),
    "prompt_embeds": Foreign("send the prompt as text or token ids"),
    "detokenize": Foreign("answers have texts; return_token_ids adds the ids", (True,)),
    "return_tokens_as_token_ids": Foreign("use return_token_ids", (False,)),
    "skip_special_tokens": Foreign("use return_token_ids to see control tokens", (True,)),
    "guided_whitespace_pattern": Foreign("JSON is written in one way here"),
    "vllm_xargs": Foreign("there are no such arguments here", ({},)),
    # llama-server
    "n_predict": Foreign("use max_tokens", (-1,)),
    "tfs_z": Foreign(NO_SAMPLER, (0, 1)),
    "min_keep": Foreign(NO_SAMPLER, (0, 1)),
    "n_probs": Foreign("use logprobs", (0,)),
    "post_sampling_probs": Foreign('use "logprobs_mode": "processed"', (False,)),
    "t_max_predict_ms": Foreign(_TIME, (0, -1)),
    "t_max_prompt_ms": Foreign(_TIME, (0, -1)),
    "n_indent": Foreign(_INFILL, (0,)),
    "return_tokens": Foreign("use return_token_ids", (False,)),
    "image_data": Foreign("put pictures into messages as data URIs", ([],)),
    "multimodal_data": Foreign("put pictures into messages as data URIs", ([],)),
    "parse_tool_calls": Foreign("leave out the tools for the text as it is", (True,)),
    "thinking_budget_tokens": Foreign("use reasoning_effort, or max_tokens", (-1,)),
    "thinking_token_budget": Foreign("use reasoning_effort, or max_tokens"),
    "input_prefix": Foreign(_INFILL, ("",)),
    "input_suffix": Foreign(_INFILL, ("",)),
    "input_extra": Foreign(_INFILL, ([],)),
    # OpenAI
    "functions": Foreign(_FUNCTIONS, ([],)),
    "function_call": Foreign(_FUNCTIONS, ("auto", "none")),
    "audio": Foreign("this server makes no sound"),
    "modalities": Foreign("replies are text", (["text"], [])),
    "web_search_options": Foreign("this server searches nothing; offer a tool that does"),
    "suffix": Foreign(_INFILL, ("",)),
    # Ollama
    "options": Foreign(_OLLAMA, ({},)),
    "format": Foreign("use response_format, or /api/chat", ("",)),
    "think": Foreign("use reasoning_effort or chat_template_kwargs, or /api/chat"),
    "num_predict": Foreign("use max_tokens", (-1,)),
    "raw": Foreign(_COMPLETION, (False,)),
    "context": Foreign("send the whole conversation", ([],)),
    "images": Foreign("put pictures into messages as data URIs", ([],)),
}
"""Fields that would change the reply; `Foreign.neutral` are the values that do not."""

OF_PROMPTS: dict[str, Foreign] = {
    name: REFUSED[name]
    for name in (
        *("add_generation_prompt", "continue_final_message", "chat_template", "documents"),
        *("truncate_prompt_tokens", "functions", "image_data", "multimodal_data"),
        *("think", "images"),
    )
}
"""Fields that would change a prompt that is asked for as text or tokens."""

OF_VECTORS: dict[str, Foreign] = {
    # llama-server
    "embd_normalize": Foreign(_LENGTH, (2,)),
    # vLLM
    "normalize": Foreign(_LENGTH, (True,)),
    "truncate_prompt_tokens": Foreign("shorten the texts", (-1,)),
    "add_special_tokens": Foreign("send token ids as the text", (True,)),
    "embed_dtype": Foreign("numbers have 32 bits", ("float32",)),
    "endianness": Foreign("base64 has the lowest byte first", ("native", "little")),
}
"""Fields that would change the vectors of texts."""

OF_SCORES: dict[str, Foreign] = {
    # vLLM
    "truncate_prompt_tokens": OF_VECTORS["truncate_prompt_tokens"],
    **dict.fromkeys(("activation", "use_activation"), Foreign(_SCORES, (False,))),
}
"""Fields that would change the scores of documents."""

WITHOUT_EFFECT: tuple[str, ...] = (
    # OpenAI
    *("store", "metadata", "user", "service_tier", "verbosity", "safety_identifier"),
    *("prompt_cache_key", "prompt_cache_retention"),
    # llama-server
    *("cache_prompt", "timings_per_token", "id_slot", "n_keep", "n_discard", "n_cache_reuse"),
    "response_fields",
    *("speculative.n_max", "speculative.n_min", "speculative.p_min"),
    # vLLM
    *("spaces_between_special_tokens", "priority", "request_id", "guided_decoding_backend"),
    *("kv_transfer_params", "mm_processor_kwargs"),
    # Ollama, LM Studio
    *("keep_alive", "num_ctx", "ttl", "draft_model"),
)
"""Fields that cannot change a reply here: hints, names and speed."""
