# An app as one finds them inside: HTTP/1.1 with streams both ways, and a WebSocket that says everything again.
import base64, hashlib, http.server, json, struct, sys

class App(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, body, headers=()):
        self.send_response(200)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/ws":
            return self.websocket()
        if self.path == "/sse":
            return self.events()
        if self.path == "/cookie":
            cookies = [("Set-Cookie", "own=1; Path=/; Domain=localhost"), ("Set-Cookie", "handler_preview=forged")]
            return self.answer(b"cookies", cookies)
        seen = [[name.lower(), value] for name, value in self.headers.items()]
        self.answer(json.dumps({"path": self.path, "headers": seen}).encode())

    def events(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        # The second one only when the first was heard: the reader opens /heard meanwhile.
        for text in ["data: one\n\n", "data: two\n\n"]:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text.encode()))
            self.wfile.flush()
            if "one" in text:
                heard.acquire()
        self.wfile.write(b"0\r\n\r\n")

    def do_POST(self):
        if self.path == "/heard":
            heard.release()
            return self.answer(b"ok")
        digest, total = hashlib.sha256(), 0
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                block = self.rfile.read(size)
                digest.update(block)
                total += len(block)
                self.rfile.readline()
            self.rfile.readline()
        else:
            left = int(self.headers.get("Content-Length", 0))
            while left:
                block = self.rfile.read(min(left, 65536))
                digest.update(block)
                left -= len(block)
                total += len(block)
        self.answer(f"{total} {digest.hexdigest()}".encode())

    def websocket(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept)
        self.end_headers()
        self.close_connection = True
        while True:
            head = self.rfile.read(2)
            if len(head) < 2:
                return
            size = head[1] & 127
            if size == 126:
                size = struct.unpack(">H", self.rfile.read(2))[0]
            elif size == 127:
                size = struct.unpack(">Q", self.rfile.read(8))[0]
            mask = self.rfile.read(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(size)))
            if head[0] & 15 == 8:
                return
            length = bytes([size]) if size < 126 else b"\x7e" + struct.pack(">H", size)
            self.wfile.write(bytes([head[0]]) + length + data)
            self.wfile.flush()

import threading
heard = threading.Semaphore(0)
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), App)
print("listening", flush=True)
server.serve_forever()
