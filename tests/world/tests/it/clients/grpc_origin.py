"""A gRPC server on two ports with one certificate: says what it is told, also in a trailer, and keeps a log.

grpc_origin.py CERTIFICATE KEY FOLDER LOG: prints the two ports.
"""
import concurrent.futures
import json
import sys

import grpc

certificate, key, _, log_path = sys.argv[1:5]
log = open(log_path, "a", buffering=1)


class Echo(grpc.GenericRpcHandler):
    port = 0

    def service(self, call):
        def say(message, context):
            log.write(json.dumps({
                "port": self.port,
                "path": call.method,
                "headers": dict(call.invocation_metadata),
                "body": message.decode(),
            }) + "\n")
            context.set_trailing_metadata((("x-said", message.decode()),))
            return message

        return grpc.unary_unary_rpc_method_handler(say)


servers = []
for _ in range(2):
    echo = Echo()
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2), handlers=[echo])
    with open(certificate, "rb") as public, open(key, "rb") as private:
        credentials = grpc.ssl_server_credentials([(private.read(), public.read())])
    echo.port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    servers.append(server)
    print(echo.port, flush=True)
sys.stdin.read()
