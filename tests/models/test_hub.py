"""Models of the Hugging Face hub, from a small one that runs inside the test."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import huggingface_hub
import pytest

from draftwise.errors import ModelError
from draftwise.models.load import load
from draftwise.models.sources import Kind, find
from tests.tiny_folders import save_llama

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """One repository, `tiny/llama`, which is the folder `root`; `tiny/gated` asks for a login."""

    root: Path

    def do_GET(self) -> None:
        if self.path.startswith(f"/tiny/llama/resolve/{COMMIT}/"):
            self._file(self.root / self.path.rsplit("/", 1)[1])
        elif self.path.startswith("/api/models/tiny/llama/revision/main"):
            self._json({"id": "tiny/llama", "sha": COMMIT})
        elif self.path.startswith(f"/api/models/tiny/llama/tree/{COMMIT}"):
            self._json(
                [
                    {"type": "file", "path": file.name, "size": file.stat().st_size, "oid": file.name}
                    for file in self.root.iterdir()
                ]
            )
        elif self.path.startswith("/api/models/tiny/gated"):
            self._answer(403, b"", {"X-Error-Code": "GatedRepo"})
        else:
            self._answer(404, b"", {"X-Error-Code": "RepoNotFound"})

    do_HEAD = do_GET  # noqa: N815

    def _json(self, value: object) -> None:
        self._answer(200, json.dumps(value).encode())

    def _file(self, file: Path) -> None:
        headers = {"ETag": f'"{file.name}"', "X-Repo-Commit": COMMIT}
        self._answer(200, file.read_bytes(), headers)

    def _answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadingHTTPServer]:
    Hub.root = save_llama(tmp_path / "repository")
    (Hub.root / "pytorch_model.bin").write_bytes(b"a pickle")
    (Hub.root / "consolidated.safetensors").write_bytes(b"the weights a second time")
    (Hub.root / "modeling_llama.py").write_text("raise SystemExit")
    monkeypatch.setenv("DRAFTWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        endpoint = f"http://127.0.0.1:{server.server_port}"
        constants = huggingface_hub.constants
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, endpoint)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def test_a_hub_model_is_downloaded_without_pickles_or_code(hub: ThreadingHTTPServer) -> None:
    seen: list[tuple[str, float]] = []
    model = load("tiny/llama", engine="torch", progress=lambda *at: seen.append(at))
    assert model.name == "tiny/llama"
    assert ("downloading tiny/llama", 1.0) in seen
    assert all(0 <= fraction <= 1 for _, fraction in seen)
    found = find("tiny/llama", trust_remote_code=False, progress=lambda *at: None)
    assert (found.kind, found.identity) == (Kind.TRANSFORMERS, f"tiny/llama@{COMMIT}")
    names = {path.name for path in found.path.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"} <= names
    assert not {"pytorch_model.bin", "consolidated.safetensors", "modeling_llama.py"} & names
    trusted = find("tiny/llama", trust_remote_code=True, progress=lambda *at: None)
    assert "modeling_llama.py" in {path.name for path in trusted.path.iterdir()}


def test_offline_the_snapshot_in_the_cache_serves(hub: ThreadingHTTPServer) -> None:
    online = find("tiny/llama", trust_remote_code=False, progress=lambda *at: None)
    hub.shutdown()
    hub.server_close()
    assert find("tiny/llama", trust_remote_code=False, progress=lambda *at: None) == online
    with pytest.raises(
        ModelError, match=r"no file or folder tiny/other, and tiny/other could not be fetched"
    ):
        load("tiny/other")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tiny/nothing", r"no model tiny/nothing: .* no repository tiny/nothing on the hub; give a hub id"),
        ("tiny/gated", r"tiny/gated is gated on the hub; accept its terms"),
    ],
)
def test_what_the_hub_does_not_give_is_told(name: str, message: str, hub: ThreadingHTTPServer) -> None:
    with pytest.raises(ModelError, match=message):
        load(name)


def test_a_repository_of_pickles_is_refused(hub: ThreadingHTTPServer) -> None:
    for weights in Hub.root.glob("*.safetensors"):
        weights.unlink()
    with pytest.raises(ModelError, match=r"tiny/llama holds no safetensors"):
        load("tiny/llama")
