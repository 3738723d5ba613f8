// An editor: a client of the public ACP library over `handler acp`'s standard streams. What it does comes as
// JSON documents on standard input, one a line; what came of each goes to standard output in the same way.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const [program, ...args] = process.argv.slice(2);
const agent = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));

let updates = [];
let questions = [];
let choice = "allow_once";
const waiting = [];

const app = acp
  .client({ name: "an editor" })
  .onNotification(acp.methods.client.session.update, ({ params }) => {
    updates.push(params);
  })
  .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
    questions.push(params);
    if (choice === "wait") {
      return new Promise((resolve) => waiting.push(resolve));
    }
    const option = params.options.find((option) => option.kind === choice);
    return { outcome: { outcome: "selected", optionId: option.optionId } };
  });

const reply = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

await app.connectWith(stream, async (editor) => {
  for await (const line of createInterface({ input: process.stdin })) {
    const { method, params, answer } = JSON.parse(line);
    if (answer) choice = answer;
    try {
      const result = method.endsWith("/cancel")
        ? await editor.notify(method, params)
        : await editor.request(method, params);
      reply({ result: result ?? null, updates, questions });
    } catch (error) {
      reply({ error: { code: error.code ?? null, message: error.message }, updates, questions });
    }
    updates = [];
    questions = [];
  }
});
agent.stdin.end();
agent.on("exit", (code) => process.exit(code ?? 1));
