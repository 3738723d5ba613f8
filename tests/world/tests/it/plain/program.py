#!/usr/bin/env python3
"""An agent program that does what it is told: over ACP, or with `--cli` on a terminal."""
import json, os, signal, sys

if "--cli" in sys.argv:
    size = os.get_terminal_size()
    print("terminal", os.environ.get("TERM"), f"{size.columns}x{size.lines}", *sys.argv[2:], flush=True)
    if "--at-once" in sys.argv:
        sys.exit(int(sys.argv[-1]))
    signal.signal(signal.SIGWINCH, lambda *_: print("resized", *os.get_terminal_size(), flush=True))
    signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
    for line in iter(sys.stdin.readline, ""):
        word = line.split()
        if word[:1] == ["exit"]:
            sys.exit(int(word[1]))
        print("you said", line.strip(), flush=True)
    sys.exit(0)

mode, session, waiting = "auto", "conversation-1", {}

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")), flush=True)

def say(text):
    send(method="session/update", params={"sessionId": session, "update": {
        "sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}})

def opened(params):
    return {"sessionId": session, "_meta": {"got": params}, "modes": {"currentModeId": mode, "availableModes": [
        {"id": name, "name": name} for name in ("default", "acceptEdits", "auto")]}}

def prompt(asked, params):
    text = "".join(block.get("text", "") for block in params["prompt"])
    word = text.split()[-2:] if len(text.split()) > 1 else [text, ""]
    if word[0] == "big":
        say("x" * int(word[1]))
    elif word[0] == "exit":
        sys.exit(int(word[1]))
    elif word[0] == "call":
        waiting["c"] = asked
        return send(id="c", method=word[1], params={"sessionId": session})
    elif word[0] == "mode":
        say(mode)
    elif word[0] == "tell":
        send(method=word[1], params={"sessionId": session})
    elif word[0] == "env":
        say(os.environ.get(word[1], "nothing"))
    else:
        say(text)
    send(id=asked, result={"stopReason": "end_turn"})

print("a word on standard error", file=sys.stderr, flush=True)
for line in iter(sys.stdin.readline, ""):
    message = json.loads(line)
    method, params, asked = message.get("method"), message.get("params") or {}, message.get("id")
    if method is None:
        say(json.dumps(message.get("error") or message.get("result")))
        send(id=waiting.pop(asked), result={"stopReason": "end_turn"})
    elif method == "initialize":
        send(id=asked, result={"protocolVersion": 1, "agentCapabilities": {"loadSession": True},
            "authMethods": [{"id": "x", "name": "x"}], "_meta": {"got": params}})
    elif method in ("session/new", "session/load", "session/resume", "session/fork"):
        send(id=asked, result=opened(params))
    elif method == "session/set_mode":
        mode = params["modeId"]
        send(id=asked, result={})
    elif method == "session/prompt":
        prompt(asked, params)
    elif asked is not None:
        send(id=asked, result={"did": method})
    else:
        say("heard " + method)
