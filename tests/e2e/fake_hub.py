"""A server that answers like the Hugging Face Hub, and a second one on a port of its own that has
the bytes of large files.  The shapes are those that the package huggingface_hub reads, which can
download from it (test_hub.py).  A test changes what it says through its attributes."""
import hashlib
import http.server
import json
import re
import threading
import urllib.parse

SMALL = 10_000  # bytes; a file of more is in LFS


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repo:
    def __init__(self, files, license="apache-2.0", gated=False, private=False):
        self.files, self.license, self.gated, self.private = files, license, gated, private
        self.sha = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.gguf = None

    def info(self, name):
        out = {"_id": "1", "id": name, "modelId": name, "sha": self.sha, "private": self.private,
               "gated": self.gated, "disabled": False, "downloads": 1, "likes": 1, "tags": ["gguf"],
               "siblings": [{"rfilename": p} for p in sorted(self.files)]}
        if self.license:
            out["cardData"] = {"license": self.license}
            out["tags"].append("license:" + self.license)
        if self.gguf:
            out["gguf"] = self.gguf
        return out

    def tree(self):
        out = []
        for folder in sorted({p.rpartition("/")[0] for p in self.files if "/" in p}):
            out.append({"type": "directory", "path": folder, "size": 0, "oid": "0" * 40})
        for path, data in sorted(self.files.items()):
            e = {"type": "file", "path": path, "size": len(data), "oid": git_sha1(data)}
            if len(data) > SMALL:
                e["lfs"] = {"oid": sha256(data), "size": len(data), "pointerSize": 134}
                e["oid"] = git_sha1(b"pointer of " + path.encode())
            out.append(e)
        return out


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub, seen = self.server.hub, {k.lower(): v for k, v in self.headers.items()}
        url = urllib.parse.urlsplit(self.path)
        with hub.lock:
            hub.requests.append((self.server.name, self.command, self.path, seen))
            broken = hub.script.pop(0) if hub.script and self.server.name == hub.script_at else None
        self.done = False
        try:
            if broken:
                broken(self, seen)
            if not self.done:
                self.server.answer(self, urllib.parse.unquote(url.path),
                                   urllib.parse.parse_qs(url.query), seen)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def reply(self, status, body=b"", **fields):
        self.done = True
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
            fields.setdefault("Content_Type", "application/json; charset=utf-8")
        self.send_response(status)
        fields.setdefault("Content_Length", str(len(body)))
        for k, v in fields.items():
            self.send_header(k.replace("_", "-"), v)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def fail(self, status, code, message):
        self.reply(status, {"error": message}, X_Error_Code=code, X_Error_Message=message)

    def cut(self, data, n, status=200, **fields):
        """Announce data and send n bytes of it."""
        self.done = self.close_connection = True
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        for k, v in fields.items():
            self.send_header(k.replace("_", "-"), v)
        self.end_headers()
        self.wfile.write(data[:n])
        self.wfile.flush()

    def ranged(self, data, seen, **fields):
        """The data, or the range of it that was asked for."""
        m = re.fullmatch(r"bytes=(\d+)-(\d*)", seen.get("range", ""))
        if not m or not self.server.hub.ranges:
            return self.reply(200, data, Accept_Ranges="bytes", **fields)
        start, end = int(m[1]), min(int(m[2] or len(data) - 1), len(data) - 1)
        if start > end:
            return self.reply(416, Content_Range="bytes */%d" % len(data))
        return self.reply(206, data[start:end + 1], Accept_Ranges="bytes",
                          Content_Range="bytes %d-%d/%d" % (start, end, len(data)), **fields)


class Hub:
    def __init__(self):
        self.repos, self.renamed, self.users = {}, {}, {}  # users: token -> repositories it may read
        self.lock, self.requests = threading.Lock(), []
        self.script, self.script_at = [], "files"  # what the next requests there get instead
        self.ranges, self.page = True, 1000
        self.edit_tree = lambda entries: entries
        self.serve = lambda path, data: data  # the bytes that the second server has for a path
        self.valid = set()  # signatures of addresses that have not expired
        self.location = None  # where the Hub redirects to, instead of the second server
        self.servers, self.threads = [], []
        self.url = self.start("hub", self.answer)
        self.files_url = self.start("files", self.answer_files)

    def start(self, name, answer):
        s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        s.daemon_threads, s.hub, s.name, s.answer = True, self, name, answer
        t = threading.Thread(target=s.serve_forever, args=(0.02,), daemon=True)
        t.start()
        self.servers.append(s)
        self.threads.append(t)
        return "http://127.0.0.1:%d" % s.server_address[1]

    def stop(self):
        for s in self.servers:
            s.shutdown()
            s.server_close()
        for t in self.threads:
            t.join()

    def seen(self, server, method=None):
        return [(p, h) for s, m, p, h in self.requests if s == server and method in (None, m)]

    # ---- the Hub ----

    def allowed(self, h, name, repo, seen):
        token = seen.get("authorization", "").removeprefix("Bearer ")
        if token and token not in self.users:
            h.fail(401, "RepoNotFound", "Invalid credentials in Authorization header")
        elif not repo or (repo.private and name not in self.users.get(token, ())):
            if token:
                h.fail(404, "RepoNotFound", "Repository not found")
            else:
                h.fail(401, "RepoNotFound", "Invalid username or password.")
        else:
            return True
        return False

    def answer(self, h, path, query, seen):
        m = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+))?", path)
        if m:
            return self.answer_api(h, m[1], m[2], m[3], query, seen)
        m = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if m:
            return self.answer_resolve(h, m[1], m[2], m[3], seen)
        return h.fail(404, "EntryNotFound", "Not Found")

    def answer_api(self, h, name, what, rev, query, seen):
        if name in self.renamed:
            return h.reply(307, Location=h.path.replace(name, self.renamed[name], 1))
        repo = self.repos.get(name)
        if not self.allowed(h, name, repo, seen):
            return None
        if rev and rev not in ("main", repo.sha):
            return h.fail(404, "RevisionNotFound", "Invalid rev id: " + rev)
        if what != "tree":
            return h.reply(200, repo.info(name))
        entries = self.edit_tree(repo.tree())
        at = int(query.get("cursor", ["0"])[0])
        fields = {}
        if at + self.page < len(entries):
            fields["Link"] = '<%s/api/models/%s/tree/%s?recursive=true&expand=false&cursor=%d>; rel="next"' % (
                self.url, name, rev, at + self.page)
        return h.reply(200, entries[at:at + self.page], **fields)

    def answer_resolve(self, h, name, rev, path, seen):
        repo = self.repos.get(name)
        if not self.allowed(h, name, repo, seen):
            return None
        token = seen.get("authorization", "").removeprefix("Bearer ")
        if repo.gated and name not in self.users.get(token, ()):
            return h.fail(401 if not token else 403, "GatedRepo",
                          "Access to model %s is restricted." % name)
        if rev not in ("main", repo.sha):
            return h.fail(404, "RevisionNotFound", "Invalid rev id: " + rev)
        if path not in repo.files:
            return h.fail(404, "EntryNotFound", "Entry not found")
        data = repo.files[path]
        if len(data) <= SMALL:
            return h.ranged(data, seen, ETag='"%s"' % git_sha1(data), X_Repo_Commit=repo.sha)
        signature = "%d" % len(self.valid)
        with self.lock:
            self.valid.add(signature)
        to = self.location or "%s/%s/%s?sig=%s" % (self.files_url, name, urllib.parse.quote(path),
                                                   signature)
        return h.reply(302, b"Found. Redirecting", Location=to, X_Repo_Commit=repo.sha,
                       X_Linked_Size=str(len(data)), X_Linked_Etag='"%s"' % sha256(data),
                       Accept_Ranges="bytes")

    # ---- the second server ----

    def answer_files(self, h, path, query, seen):
        _, owner, repo, rest = path.split("/", 3)
        with self.lock:
            good = query.get("sig", [""])[0] in self.valid
        if not good:
            return h.reply(403, b"<Error>expired</Error>", Content_Type="application/xml")
        data = self.serve(rest, self.repos[owner + "/" + repo].files[rest])
        return h.ranged(data, seen, ETag='"%s"' % hashlib.md5(data).hexdigest())
