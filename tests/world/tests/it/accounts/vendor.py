"""The outside, as a proxy shows it: vendors' hosts answered by a model of ours, with certificates of an authority of ours.

vendor.py CERTIFICATE KEY PORT HOST…: prints its own port. What is asked of HOST:443 is decrypted and goes to PORT on
loopback; everything else is refused.
"""
import socket
import ssl
import sys
import threading

certificate, key, port, *hosts = sys.argv[1:]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)


def carry(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass
    for end in (source, sink):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def serve(client):
    head = b""
    while b"\r\n\r\n" not in head:
        piece = client.recv(4096)
        if not piece:
            return
        head += piece
    target = head.split()[1].decode()
    if target not in [host + ":443" for host in hosts]:
        client.sendall(b"HTTP/1.1 502 X\r\ncontent-length: 0\r\n\r\n")
        client.close()
        return
    client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    tls = context.wrap_socket(client, server_side=True)
    model = socket.create_connection(("127.0.0.1", int(port)))
    threading.Thread(target=carry, args=(tls, model), daemon=True).start()
    carry(model, tls)


def quietly(client):
    try:
        serve(client)
    except OSError:
        pass


listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
# It ends with who started it.
threading.Thread(target=lambda: (sys.stdin.read(), listener.close(), sys.exit(0)), daemon=True).start()
while True:
    accepted, _ = listener.accept()
    threading.Thread(target=quietly, args=(accepted,), daemon=True).start()
