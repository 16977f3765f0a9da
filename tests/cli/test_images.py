"""``--image`` on the command line: pictures in front of prompts, and refusals before loading."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from picture_files import drawn, png, write_seeing

from localspec import cli
from localspec.cli.images import asking, read_images
from localspec.cli.prompt_file import Around, PromptLine
from localspec.core.errors import UsageError
from localspec.core.reply_request import ReplyRequest


def test_a_picture_stands_in_front_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(png())
    (picture,) = read_images([str(path)])
    made = asking("What?", (picture,))
    assert made.content == "\nWhat?"
    assert made.pictures == (picture,)
    assert asking("What?").content == "What?"


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.png cannot be read: No such file"):
        read_images([str(tmp_path / "nowhere.png")])
    (tmp_path / "empty.png").touch()
    with pytest.raises(UsageError, match="is empty"):
        read_images([str(tmp_path / "empty.png")])


def test_lines_of_json_name_their_pictures(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(png())
    message = {"role": "user", "content": "What?"}
    line = PromptLine(1, json.dumps({"messages": [message], "images": [str(path)]}), True)
    (made,) = line.request(ReplyRequest(), Around()).messages
    assert made.content == "\nWhat?"
    assert made.pictures[0].data == png()
    raw = PromptLine(2, json.dumps({"prompt": "x", "images": [str(path)]}), True)
    with pytest.raises(UsageError, match="line 2: pictures go in front of a last message"):
        raw.request(ReplyRequest(), Around())
    wrong = PromptLine(3, json.dumps({"messages": [message], "images": "a.png"}), True)
    with pytest.raises(UsageError, match="line 3: 'images' must be a list of files"):
        wrong.request(ReplyRequest(), Around())


def test_a_reply_about_pictures(
    tmp_path: Path, mtmd: None, capfd: pytest.CaptureFixture[str]
) -> None:
    seeing = write_seeing(tmp_path / "model", "llava")
    (tmp_path / "a.png").write_bytes(png())
    (tmp_path / "b.png").write_bytes(png(drawn(3)))
    model = ["-m", str(seeing.model), "-d", "none", "-n", "4", "--seed", "1", "--threads", "1"]
    images = ["--image", str(tmp_path / "a.png"), "--image", str(tmp_path / "b.png")]
    assert cli.call(["run", "What?", *model, *images, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["stats"]["prompt_tokens"] > 128
    prompts = tmp_path / "prompts"
    prompts.write_text("One?\nTwo?\n", encoding="utf-8")
    assert cli.call(["run", "--parallel", str(prompts), *model, *images[:2]]) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [64 < line["stats"]["prompt_tokens"] < 128 for line in lines] == [True, True]


@pytest.mark.parametrize(
    ("arguments", "why", "code"),
    [
        (["--raw"], "--image needs the chat template", 2),
        (["--mmproj", "none"], "cannot see pictures", 2),
        (["--mmproj", "nowhere.gguf"], "there is no projector nowhere.gguf", 3),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(
    arguments: list[str], why: str, code: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seeing = write_seeing(tmp_path / "model", "llava")
    (tmp_path / "a.png").write_bytes(png())
    image = ["--image", str(tmp_path / "a.png")]
    model = ["-m", str(seeing.model), "-d", "none"]
    assert cli.call(["run", "What?", *model, *image, *arguments]) == code
    assert why in capfd.readouterr().err


@pytest.mark.parametrize("command", ["verify", "bench"])
def test_only_run_and_the_chat_send_pictures_elsewhere(
    command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.png").write_bytes(png())
    image = ["--image", str(tmp_path / "a.png")]
    assert cli.call([command, "--url", "http://127.0.0.1:9/v1", *image]) == 2
    assert "--image is for a model of this machine" in capfd.readouterr().err


def test_verify_and_bench_take_pictures(
    tmp_path: Path, mtmd: None, capfd: pytest.CaptureFixture[str]
) -> None:
    seeing = write_seeing(tmp_path / "model", "qwen2vl")
    (tmp_path / "a.png").write_bytes(png())
    shared = [str(seeing.model), "-d", "none", "-n", "8", "--image", str(tmp_path / "a.png")]
    assert cli.call(["verify", *shared, "--limit", "1", "-t", "0", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["exact"]
    assert cli.call(["bench", *shared, "--against", "llama-cpp-python"]) == 2
    assert "leave out --image" in capfd.readouterr().err
