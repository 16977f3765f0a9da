"""Adapters through a real server: replies of different adapters at a time are those of the Python
API alone, and files are loaded, exchanged and unloaded while it runs.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gguf_tools
import httpx2
import pytest
from conftest import Files
from replies import ENDLESS
from served import served

from localspec import Options, ReplyRequest, Runtime, Sampling
from localspec.core.adapter_list import AdapterUse, read
from localspec.serve.http.settings import ServeSettings

MATRICES = {"blk.0.attn_q.weight": (64, 64), "blk.1.ffn_up.weight": (128, 64)}
BIAS = {str(token): bias for token, bias in ENDLESS}


@pytest.mark.slow
def test_replies_by_name_and_number_beside_each_other_are_those_of_the_api(
    files: Files, tmp_path: Path
) -> None:
    folder = tmp_path / "adapters"
    folder.mkdir()
    style, later = tmp_path / "style.gguf", folder / "later.gguf"
    gguf_tools.write_lora(style, MATRICES, seed=1)
    gguf_tools.write_lora(later, MATRICES, seed=2)
    options = Options(
        model=str(files.target),
        draft=str(files.draft),
        draft_max=3,
        parallel=4,
        lora=read([f"{style}:0"]),
    )

    def alone(*uses: tuple[Path, float]) -> str:
        asked = ReplyRequest(
            prompt="The rain",
            sampling=Sampling(temperature=0.9, logit_bias=ENDLESS),
            seed=5,
            max_tokens=30,
            draft=False,
            adapters=tuple(AdapterUse(str(path), scale) for path, scale in uses),
        )
        reply: str = runtime.answer(asked).text
        return reply

    with Runtime.open(options) as runtime:
        runtime.load_adapter(later)
        wanted = [alone(), alone((style, 0.5)), alone((style, 1.0)), alone((later, 1.0))]
    assert len(set(wanted)) == 4
    settings = ServeSettings(port=0, lora_folders=(folder,))
    with served(settings, options) as server, httpx2.Client(base_url=server.url) as client:

        def post(path: str, body: Any) -> httpx2.Response:
            return client.post(path, json=body, timeout=60)

        def said(**more: Any) -> str:
            sampling = {"temperature": 0.9, "seed": 5, "max_tokens": 30, "logit_bias": BIAS}
            answer = post("/v1/completions", {"prompt": "The rain", **sampling, **more})
            assert answer.status_code == 200, answer.text
            text: str = answer.json()["choices"][0]["text"]
            return text

        load = {"lora_name": "later", "lora_path": "later.gguf"}
        loaded = post("/v1/load_lora_adapter", load)
        assert loaded.text == "Success: LoRA adapter 'later' added successfully."
        assert post("/v1/load_lora_adapter", load).status_code == 400
        fields: list[dict[str, Any]] = [
            {},
            {"lora": [{"id": 0, "scale": 0.5}]},
            {"model": "style"},
            {"model": "later"},
        ]
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda more: said(**more), fields * 3))
        assert found == wanted * 3
        names = {one["id"] for one in client.get("/v1/models").json()["data"]}
        assert {"style", "later"} <= names
        gguf_tools.write_lora(later, MATRICES, seed=1)
        assert post("/v1/load_lora_adapter", load | {"load_inplace": True}).status_code == 200
        assert said(model="later") == wanted[2]
        pages = client.get("/metrics").text
        assert 'localspec:adapter_accepted_tokens_total{adapter="later"}' in pages
        unloaded = post("/v1/unload_lora_adapter", {"lora_name": "later"})
        assert unloaded.text == "Success: LoRA adapter 'later' removed successfully."
        assert post("/v1/completions", {"prompt": "a", "model": "later"}).status_code == 404
        wrong = folder / "wrong.gguf"
        gguf_tools.write_lora(wrong, {"blk.0.attn_q.weight": (64, 32)})
        refused = post("/v1/load_lora_adapter", {"lora_name": "w", "lora_path": "wrong.gguf"})
        assert refused.status_code == 400
        assert "it is of another model" in refused.json()["error"]["message"]
        assert said() == wanted[0]
        assert not server.notes.defects
