"""A server that answers as the Hugging Face hub does, for one dataset, and can fail in the ways that it does."""

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34


class Hub(ThreadingHTTPServer):
    """Serves `datasets/owner/name`.

    Attributes:
        files: path -> what it holds.
        lied: path -> what it sends instead.
        breaks: path -> bytes after which the connection is cut, once for each number.
        opens_to: what a user must show to get files; nothing where empty.
        said: status and X-Error-Code with which every request for a file is refused.
        asked: every request, as (method, path, Range header).
    """

    daemon_threads = True

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Answer)
        self.files, self.lied, self.breaks = dict(files), {}, {}
        self.opens_to, self.said, self.asked = "", None, []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def sent(self):
        """The files that were asked for, with their Range headers."""
        return [(path.partition(f"/resolve/{COMMIT}/")[2], span) for _, path, span in self.asked if "/resolve/" in path]


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append((self.command, path, self.headers.get("Range")))
        home = "/api/datasets/owner/name"
        if path in (home, f"{home}/revision/main"):
            self.tell({"id": "owner/name", "sha": COMMIT, "siblings": []})
        elif path.startswith(f"{home}/revision/"):
            self.refuse(404, "RevisionNotFound")
        elif path.startswith(f"{home}/tree/{COMMIT}"):
            self.tree(path.removeprefix(f"{home}/tree/{COMMIT}").strip("/"))
        elif path.startswith(f"/datasets/owner/name/resolve/{COMMIT}/"):
            self.send(path.partition(f"/resolve/{COMMIT}/")[2])
        else:
            self.refuse(401, "RepoNotFound")

    def tree(self, folder):
        deep = "recursive=true" in self.path.lower()
        start = f"{folder}/" if folder else ""
        found = {path: data for path, data in self.server.files.items() if path.startswith(start)}
        if not found:
            return self.refuse(404, "EntryNotFound")
        entries = []
        for path, data in found.items():
            if not deep and "/" in path[len(start) :]:
                entries.append({"type": "directory", "path": path.rpartition("/")[0], "oid": "0" * 40, "size": 0})
                continue
            blob = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
            entry = {"type": "file", "path": path, "size": len(data), "oid": blob}
            if len(data) > 1000:  # as large files are: in git there is but a pointer to them
                oid = hashlib.sha256(data).hexdigest()
                entry |= {"oid": "0" * 40, "lfs": {"oid": oid, "size": len(data), "pointerSize": 134}}
            entries.append(entry)
        return self.tell(entries)

    def send(self, path):
        hub = self.server
        if hub.said:
            return self.refuse(*hub.said)
        if hub.opens_to and self.headers.get("Authorization") != f"Bearer {hub.opens_to}":
            return self.refuse(403 if self.headers.get("Authorization") else 401, "GatedRepo")
        if path not in hub.files:
            return self.refuse(404, "EntryNotFound")
        data = hub.lied.get(path, hub.files[path])
        span = self.headers.get("Range")
        start = int(span.removeprefix("bytes=").partition("-")[0]) if span else 0
        self.send_response(206 if span else 200)
        if span:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        stop = hub.breaks[path].pop(0) if hub.breaks.get(path) else len(data)
        self.wfile.write(data[start:stop])
        if stop < len(data):
            self.wfile.flush()
            self.close_connection = True
        return None

    def tell(self, content):
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status, code):
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextmanager
def serving(files):
    """A hub that serves these files, until the end of the block."""
    with Hub(files) as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
