"""The programs of `check_programs.py`: what is installed of each, and what it is asked to do.

A task is the text of a program for Python or Node that ends with an error unless all went well, or
a command. It finds the server's address in ``URL``. A task that edits a file starts in a folder
with ``notes.txt``, which says "one", and ends with "two" in it; the model's part of that is played
by `scripted_server.py`, since the embedded pair cannot edit files.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_WEATHER = """{"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}},
 "required": ["city"], "additionalProperties": False}"""
_HEAD = f"""
import os
url = os.environ["URL"]
hello = [{{"role": "user", "content": "Hello"}}]
place = {_WEATHER}
"""
_CONFIG = {
    "opencode.json": """{"provider": {"localspec": {"npm": "@ai-sdk/openai-compatible",
 "options": {"baseURL": "$URL/v1"}, "models": {"demo": {"limit": {"context": 65536,
 "output": 4096}}}}}, "model": "localspec/demo", "permission": "allow"}""",
    "config.toml": """model = "demo"
model_provider = "localspec"
[model_providers.localspec]
name = "localspec"
base_url = "$URL/v1"
wire_api = "responses"
""",
    "continue.yaml": """name: local
version: 0.0.1
schema: v1
models:
  - name: demo
    provider: openai
    model: demo
    apiBase: $URL/v1
    apiKey: none
    roles: [chat, edit]
    capabilities: [tool_use]
""",
    "promptfoo.yaml": """prompts: ["Hello {{name}}"]
providers:
  - id: openai:chat:demo
    config: {apiBaseUrl: "$URL/v1", apiKey: none, max_tokens: 16}
  - id: ollama:chat:demo
    config: {num_predict: 16}
tests:
  - vars: {name: you}
    assert: [{type: javascript, value: "output.length > 0"}]
""",
    "prompts.jsonl": "".join(f'{{"prompt": "Hello {n}"}}\n' for n in range(4)),
}
"""Files that a program reads; ``$URL`` is replaced."""


@dataclass(frozen=True, slots=True)
class Program:
    """One program and its task."""

    name: str
    packages: tuple[str, ...]
    """The first is that whose version is shown; npm's where ``node``."""
    done: str
    """What the task does, for the table."""
    code: str = ""
    """The task, for Python or Node."""
    command: tuple[str, ...] = ()
    """The task as a command of the package, instead."""
    node: bool = False
    light: bool = False
    """Whether it takes part when all run together."""
    edits: bool = False
    """Whether it edits ``notes.txt``, with scripted replies."""
    environ: dict[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()


PROGRAMS = (
    Program(
        "openai (Python)",
        ("openai",),
        "chat, stream, a forced call, a schema, responses, embeddings in base64",
        _HEAD
        + """
import json, openai
api = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
chat = api.chat.completions
assert chat.create(model="demo", messages=hello, max_tokens=8).choices[0].message.content
parts = [*chat.create(model="demo", messages=hello, max_tokens=8, stream=True)]
assert parts[-1].choices[0].finish_reason == "length"
tool = {"type": "function", "function": {"name": "weather", "parameters": place}}
said = chat.create(model="demo", messages=hello, tools=[tool], tool_choice="required")
(call,) = said.choices[0].message.tool_calls[:1]
assert json.loads(call.function.arguments)["city"] is not None
form = {"type": "json_schema", "json_schema": {"name": "a", "schema": place, "strict": True}}
said = chat.create(model="demo", messages=hello, response_format=form)
assert "city" in json.loads(said.choices[0].message.content)
assert api.responses.create(model="demo", input="Hello", max_output_tokens=8).output_text
found = api.embeddings.create(model="embedder", input=["a", "what is a panda?"])
assert [len(one.embedding) for one in found.data] == [32, 32]
""",
        light=True,
    ),
    Program(
        "openai (npm)",
        ("openai",),
        "chat, stream, responses, embeddings",
        """
import OpenAI from "openai";
import assert from "node:assert";
const api = new OpenAI({ baseURL: process.env.URL + "/v1", apiKey: "none" });
const asked = { model: "demo", messages: [{ role: "user", content: "Hello" }], max_tokens: 8 };
assert((await api.chat.completions.create(asked)).choices[0].message.content);
let text = "";
for await (const part of await api.chat.completions.create({ ...asked, stream: true }))
  text += part.choices[0]?.delta?.content ?? "";
assert(text);
const said = await api.responses.create({ model: "demo", input: "Hello", max_output_tokens: 8 });
assert(said.output_text);
const found = await api.embeddings.create({ model: "embedder", input: "a" });
assert.equal(found.data[0].embedding.length, 32);
""",
        node=True,
        light=True,
    ),
    Program(
        "anthropic (Python)",
        ("anthropic",),
        "message, stream, a forced call, `count_tokens`",
        _HEAD
        + """
import anthropic
api = anthropic.Anthropic(base_url=url, api_key="none")
asked = {"model": "demo", "max_tokens": 64, "messages": hello}
assert api.messages.create(**asked).content[0].text
with api.messages.stream(**asked) as stream:
    assert "".join(stream.text_stream)
tool = {"name": "weather", "input_schema": place}
said = api.messages.create(**asked, tools=[tool], tool_choice={"type": "tool", "name": "weather"})
assert "city" in said.content[0].input
assert api.messages.count_tokens(model="demo", messages=hello).input_tokens
""",
        light=True,
    ),
    Program(
        "anthropic (npm)",
        ("@anthropic-ai/sdk",),
        "message, stream, `countTokens`",
        """
import Anthropic from "@anthropic-ai/sdk";
import assert from "node:assert";
const api = new Anthropic({ baseURL: process.env.URL, apiKey: "none" });
const messages = [{ role: "user", content: "Hello" }];
const asked = { model: "demo", max_tokens: 8, messages };
assert((await api.messages.create(asked)).content[0].text);
assert((await api.messages.stream(asked).finalMessage()).content[0].text);
assert((await api.messages.countTokens({ model: "demo", messages })).input_tokens > 0);
""",
        node=True,
        light=True,
    ),
    Program(
        "ollama (Python)",
        ("ollama",),
        "chat, stream, generate, a schema, tools, list, show, ps, embed",
        _HEAD
        + """
import json, ollama
api = ollama.Client(url)
few = {"num_predict": 8}
assert api.chat("demo", hello, options=few).message.content
parts = [*api.chat("demo", hello, options=few, stream=True)]
assert parts[-1].done and parts[-1].eval_count
assert api.generate("demo", "Hello", options=few).response
said = api.chat("demo", hello, format=place)
assert "city" in json.loads(said.message.content)
tool = {"type": "function", "function": {"name": "weather", "parameters": place}}
assert api.chat("demo", hello, tools=[tool], options=few).done
assert any(one.model.startswith("demo") for one in api.list().models)
assert "completion" in api.show("demo").capabilities
assert api.ps().models
assert len(api.embed("embedder", ["a", "b"]).embeddings) == 2
""",
        light=True,
    ),
    Program(
        "ollama (npm)",
        ("ollama",),
        "chat, stream, list, show, embed",
        """
import { Ollama } from "ollama";
import assert from "node:assert";
const api = new Ollama({ host: process.env.URL });
const messages = [{ role: "user", content: "Hello" }];
const asked = { model: "demo", messages, options: { num_predict: 8 } };
assert((await api.chat(asked)).message.content);
let text = "";
for await (const part of await api.chat({ ...asked, stream: true })) text += part.message.content;
assert(text);
assert((await api.list()).models.length > 0);
assert((await api.show({ model: "demo" })).capabilities.includes("completion"));
assert.equal((await api.embed({ model: "embedder", input: "a" })).embeddings[0].length, 32);
""",
        node=True,
        light=True,
    ),
    Program(
        "LiteLLM",
        ("litellm",),
        "completion and stream as `openai/`, `anthropic/`, `ollama_chat/`; embedding; rerank as "
        "`jina_ai/` and `cohere/`",
        _HEAD
        + """
import litellm
for name, base in (("openai", f"{url}/v1"), ("anthropic", url), ("ollama_chat", url)):
    asked = {"model": f"{name}/demo", "messages": hello, "api_base": base, "api_key": "none",
             "max_tokens": 8}
    assert litellm.completion(**asked).choices[0].message.content, name
    assert "".join(p.choices[0].delta.content or "" for p in litellm.completion(**asked,
        stream=True)), name
found = litellm.embedding(model="openai/embedder", input=["a"], api_base=f"{url}/v1",
                          api_key="none", encoding_format="float")
assert len(found.data[0]["embedding"]) == 32
for name in ("jina_ai", "cohere"):
    ranked = litellm.rerank(model=f"{name}/reranker", query="what is a panda?",
        documents=["hi", "it is a bear"], top_n=2, api_base=f"{url}/v1/rerank", api_key="none")
    assert len(ranked.results) == 2, name
""",
        environ={"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    ),
    Program(
        "LangChain: langchain-openai",
        ("langchain-openai",),
        "invoke, stream, a forced call, a schema, embeddings",
        _HEAD
        + """
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
chat = ChatOpenAI(base_url=f"{url}/v1", api_key="none", model="demo", max_tokens=64)
assert chat.invoke("Hello").content
assert "".join(part.content for part in chat.stream("Hello"))
schema = {"title": "weather", "description": "It.", **place}
assert "city" in chat.with_structured_output(schema, method="json_schema").invoke("Hello")
tool = {"type": "function", "function": {"name": "weather", "parameters": place}}
assert chat.bind_tools([tool], tool_choice="weather").invoke("Hello").tool_calls
vectors = OpenAIEmbeddings(base_url=f"{url}/v1", api_key="none", model="embedder",
                           check_embedding_ctx_length=False).embed_documents(["a", "b"])
assert [len(one) for one in vectors] == [32, 32]
""",
    ),
    Program(
        "LangChain: langchain-ollama",
        ("langchain-ollama",),
        "invoke, stream, a schema, embeddings",
        _HEAD
        + """
from langchain_ollama import ChatOllama, OllamaEmbeddings
chat = ChatOllama(base_url=url, model="demo", num_predict=64)
assert chat.invoke("Hello").content
assert "".join(part.content for part in chat.stream("Hello"))
schema = {"title": "weather", "description": "It.", **place}
assert "city" in chat.with_structured_output(schema, method="json_schema").invoke("Hello")
assert len(OllamaEmbeddings(base_url=url, model="embedder").embed_query("a")) == 32
""",
    ),
    Program(
        "LlamaIndex: openai-like",
        ("llama-index-llms-openai-like",),
        "complete, stream, chat",
        _HEAD
        + """
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike
model = OpenAILike(model="demo", api_base=f"{url}/v1", api_key="none", is_chat_model=True,
                   max_tokens=8)
assert model.complete("Hello").text
assert [*model.stream_complete("Hello")][-1].text
assert model.chat([ChatMessage(role="user", content="Hello")]).message.content
""",
    ),
    Program(
        "LlamaIndex: ollama",
        ("llama-index-llms-ollama",),
        "complete, stream",
        _HEAD
        + """
from llama_index.llms.ollama import Ollama
model = Ollama(model="demo", base_url=url, additional_kwargs={"num_predict": 8})
assert model.complete("Hello").text
assert [*model.stream_complete("Hello")][-1].text
""",
    ),
    Program(
        "pydantic-ai",
        ("pydantic-ai-slim", "pydantic-ai-slim[openai]"),
        "text, an object by a schema",
        _HEAD
        + """
from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
class Place(BaseModel):
    city: str = Field(max_length=12)
model = OpenAIChatModel("demo", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"))
assert Agent(model).run_sync("Hello", model_settings={"max_tokens": 8}).output
assert isinstance(Agent(model, output_type=Place).run_sync("Hello").output, Place)
""",
    ),
    Program(
        "instructor",
        ("instructor",),
        "objects by tools and by a JSON schema",
        _HEAD
        + """
import instructor, openai
from pydantic import BaseModel, ConfigDict, Field
class Place(BaseModel):
    model_config = ConfigDict(extra="forbid")
    city: str = Field(max_length=12)
for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
    api = instructor.from_openai(openai.OpenAI(base_url=f"{url}/v1", api_key="none"), mode=mode)
    found = api.chat.completions.create(model="demo", messages=hello, response_model=Place)
    assert isinstance(found, Place), mode
""",
    ),
    Program(
        "AI SDK (npm)",
        ("ai", "@ai-sdk/openai-compatible", "zod"),
        "text, stream, an object by a schema, embedding",
        """
import assert from "node:assert";
import { embed, generateObject, generateText, streamText } from "ai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { z } from "zod";
const made = createOpenAICompatible({ name: "localspec", baseURL: process.env.URL + "/v1",
  supportsStructuredOutputs: true });
const asked = { model: made("demo"), prompt: "Hello", maxOutputTokens: 8 };
assert((await generateText(asked)).text);
assert(await streamText(asked).text);
const schema = z.object({ city: z.string().max(12) });
const found = await generateObject({ model: made("demo"), prompt: "Hello", schema });
assert.equal(typeof found.object.city, "string");
const vector = await embed({ model: made.textEmbeddingModel("embedder"), value: "a" });
assert.equal(vector.embedding.length, 32);
""",
        node=True,
    ),
    Program(
        "llm with llm-ollama",
        ("llm", "llm-ollama"),
        "a prompt",
        command=("llm", "-m", "ollama/demo", "-o", "num_predict", "8", "Hello"),
        environ={"OLLAMA_HOST": "$URL"},
    ),
    Program(
        "promptfoo",
        ("promptfoo",),
        "`eval` by `openai:chat` and `ollama:chat`",
        command=("promptfoo", "eval", "-c", "promptfoo.yaml", "--no-cache", "--no-progress-bar"),
        node=True,
        environ={
            "OLLAMA_BASE_URL": "$URL",
            "PROMPTFOO_DISABLE_TELEMETRY": "1",
            "PROMPTFOO_DISABLE_UPDATE": "1",
        },
        files=("promptfoo.yaml",),
    ),
    Program(
        "lm-eval",
        ("lm-eval", "lm-eval[api]"),
        "`local-completions`: log-likelihoods (`echo`) and `generate_until`",
        _HEAD
        + """
from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI
model = LocalCompletionsAPI(base_url=f"{url}/v1/completions", model="demo", max_length=512,
                            tokenizer_backend="remote", tokenizer=None, num_concurrent=1)
asked = Instance("loglikelihood", {}, ("Hello", " there"), 0)
((value, greedy),) = model.loglikelihood([asked])
assert value < 0 and greedy in (True, False)
asked = Instance("generate_until", {}, ("Hello", {"max_gen_toks": 8, "until": ["zzz"]}), 0)
assert model.generate_until([asked])[0]
""",
    ),
    Program(
        "guidellm",
        ("guidellm",),
        "a synchronous benchmark of streamed chats, prompts from a file",
        """
import json, os, subprocess, sys
from pathlib import Path
program = str(Path(sys.executable).parent / "guidellm")
subprocess.run([program, "run", "--backend",
    f"kind=openai_http,target={os.environ['URL']},model=demo",
    "--profile", "kind=synchronous", "--constraint", "kind=max_requests,count=4",
    "--data", "kind=json_file,path=prompts.jsonl", "--output", "kind=json,path=report.json",
    "--disable-console-interactive"], check=True)
(found,) = json.loads(Path("report.json").read_text())["benchmarks"]
made = found["scheduler_metrics"]["requests_made"]
assert (made["successful"], made["errored"]) == (4, 0), made
""",
        environ={"HF_HUB_OFFLINE": "1"},
        files=("prompts.jsonl",),
    ),
    Program(
        "Open WebUI",
        ("open-webui",),
        "lists models of its Ollama and its OpenAI connection; chats whole and streamed with each; "
        "`/ollama/api/generate`",
        _HEAD
        + """
import json, socket, subprocess, sys, time, urllib.request
from pathlib import Path
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
base = f"http://127.0.0.1:{port}"
program = str(Path(sys.executable).parent / "open-webui")
server = subprocess.Popen([program, "serve", "--host", "127.0.0.1", "--port", str(port)],
    stdout=open("webui.log", "w"), stderr=subprocess.STDOUT)
token = ""
def ask(path, body=None):
    head = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    sent = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(base + path, sent, head)
    return urllib.request.urlopen(request, timeout=60).read().decode()
try:
    for _ in range(300):
        try:
            ask("/health")
            break
        except OSError:
            assert server.poll() is None, "it does not start"
            time.sleep(0.5)
    token = json.loads(ask("/api/v1/auths/signin", {"email": "", "password": ""}))["token"]
    known = {m["id"]: m["owned_by"] for m in json.loads(ask("/api/models"))["data"]}
    assert (known["demo"], known["demo:latest"]) == ("openai", "ollama"), known
    for name in ("demo", "demo:latest"):
        body = {"model": name, "messages": hello, "max_tokens": 8, "stream": False}
        whole = json.loads(ask("/api/chat/completions", body))
        assert whole["choices"][0]["message"]["content"], whole
        parts = ask("/api/chat/completions", body | {"stream": True})
        assert '"content"' in parts and parts.rstrip().endswith("[DONE]"), parts[-300:]
    body = {"model": "demo:latest", "prompt": "Hello", "options": {"num_predict": 8}}
    assert json.loads(ask("/ollama/api/generate", body).splitlines()[-1])["done"]
finally:
    server.terminate()
    server.wait(30)
""",
        environ={
            "DATA_DIR": "$HERE/data",
            "OLLAMA_BASE_URL": "$URL",
            "OPENAI_API_BASE_URL": "$URL/v1",
            "OPENAI_API_KEY": "none",
            "WEBUI_AUTH": "False",
            "WEBUI_SECRET_KEY": "none",
            "OFFLINE_MODE": "True",
            "RAG_EMBEDDING_ENGINE": "ollama",
        },
    ),
    Program(
        "aider",
        ("aider-chat",),
        "edits a file, edit format `whole`",
        command=(
            *("aider", "--model", "openai/demo", "--edit-format", "whole", "--yes-always"),
            *("--no-git", "--no-show-model-warnings", "--no-check-update", "--no-analytics"),
            *("--message", "Replace one by two.", "notes.txt"),
        ),
        edits=True,
        environ={"OPENAI_API_BASE": "$URL/v1", "OPENAI_API_KEY": "none"},
    ),
    Program(
        "Claude Code",
        ("@anthropic-ai/claude-code",),
        "`-p`: reads a file and edits it by its tools",
        command=(
            *("claude", "-p", "Replace one by two in notes.txt", "--model", "demo"),
            *("--permission-mode", "acceptEdits"),
        ),
        node=True,
        edits=True,
        environ={
            "ANTHROPIC_BASE_URL": "$URL",
            "ANTHROPIC_AUTH_TOKEN": "none",
            "ANTHROPIC_MODEL": "demo",
            "ANTHROPIC_SMALL_FAST_MODEL": "demo",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        },
    ),
    Program(
        "Codex",
        ("@openai/codex",),
        "`exec`: edits a file by `exec_command`",
        command=(
            *("codex", "exec", "--skip-git-repo-check"),
            *("--dangerously-bypass-approvals-and-sandbox", "Replace one by two in notes.txt"),
        ),
        node=True,
        edits=True,
        environ={"CODEX_HOME": "$HERE"},
        files=("config.toml",),
    ),
    Program(
        "opencode",
        ("opencode-ai",),
        "`run`: writes a file by its tools",
        command=("opencode", "run", "Replace one by two in notes.txt"),
        node=True,
        edits=True,
        environ={"OPENCODE_DISABLE_AUTOUPDATE": "1"},
        files=("opencode.json",),
    ),
    Program(
        "Continue's cn",
        ("@continuedev/cli",),
        "`-p`: writes a file by its tools",
        command=(
            *("cn", "--config", "continue.yaml", "--auto", "-p"),
            "Replace one by two in notes.txt",
        ),
        node=True,
        edits=True,
        environ={"CONTINUE_TELEMETRY_ENABLED": "0", "ANTHROPIC_API_KEY": "none"},
        files=("continue.yaml",),
    ),
)


def file_text(name: str, url: str) -> str:
    """A file that a program reads."""
    return _CONFIG[name].replace("$URL", url)
