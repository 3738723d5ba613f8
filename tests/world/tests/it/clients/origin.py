"""An HTTPS origin on two ports: files of a folder, a WebSocket that echoes, and a log of every request.

origin.py CERTIFICATE KEY FOLDER LOG: prints the two ports. /ws echoes one text message. In files of the folder
`@HERE@` stands for the address that was asked. Below /git/ are the repositories of the folder, for who logs in.
What is posted elsewhere is answered as it came.
"""
import base64
import gzip
import hashlib
import http.server
import json
import os
import ssl
import subprocess
import sys
import threading

certificate, key, folder, log_path = sys.argv[1:5]
log = open(log_path, "a", buffering=1)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def note(self, body=""):
        log.write(json.dumps({
            "port": self.server.server_port,
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": body,
        }) + "\n")

    def do_GET(self):
        if self.path == "/ws":
            return self.echo()
        if self.path.startswith("/git/"):
            return self.git(b"")
        self.note()
        path = os.path.normpath(self.path.split("?")[0]).lstrip("/")
        found = os.path.join(folder, path)
        if os.path.isdir(found):
            found = os.path.join(found, "index")
        if not os.path.isfile(found):
            return self.answer(404, b"no such file\n")
        with open(found, "rb") as file:
            content = file.read()
        here = self.headers.get("host", "").encode()
        self.answer(200, content.replace(b"@HERE@", here))

    def do_POST(self):
        body = self.body()
        if self.path.startswith("/git/"):
            return self.git(body)
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.note(body.decode("latin-1"))
        self.answer(200, body)

    def body(self):
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def git(self, body):
        """As git-http-backend(1) says."""
        self.note()
        if "authorization" not in self.headers:
            return self.answer(401, b"", [("www-authenticate", "Basic realm=git")])
        path, _, query = self.path.partition("?")
        environment = os.environ | {
            "GIT_PROJECT_ROOT": folder,
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": self.headers.get("git-protocol", ""),
            "REMOTE_USER": "user",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path.removeprefix("/git"),
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("content-type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""),
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=environment, stdout=subprocess.PIPE)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = [line.split(": ", 1) for line in head.decode().splitlines()]
        status = next((int(value.split()[0]) for name, value in fields if name == "Status"), 200)
        self.answer(status, content, [field for field in fields if field[0] != "Status"])

    def answer(self, status, content, fields=()):
        self.send_response(status)
        kind = "text/html" if "/simple/" in self.path else "application/octet-stream"
        for name, value in fields or [("content-type", kind)]:
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def echo(self):
        told = self.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(told.encode()).digest()).decode()
        self.wfile.write((
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept}\r\n\r\n"
        ).encode())
        head = self.rfile.read(2)
        mask = self.rfile.read(4)
        packed = self.rfile.read(head[1] & 0x7F)
        text = bytes(byte ^ mask[at % 4] for at, byte in enumerate(packed))
        self.note(text.decode())
        self.wfile.write(bytes([0x81, len(text)]) + text)
        self.close_connection = True


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
context.set_alpn_protocols(["http/1.1"])


class Server(http.server.ThreadingHTTPServer):
    def get_request(self):
        stream, address = super().get_request()
        # The handshake is made by the thread that serves the connection.
        return context.wrap_socket(stream, server_side=True, do_handshake_on_connect=False), address


for _ in range(2):
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
sys.stdin.read()
