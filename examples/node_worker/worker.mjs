// A TaskLib worker in JavaScript. It needs Node 20 and nothing else, and follows docs/reference/worker-protocol.md.
//
//   TASKLIB_TOKEN=tasklib_... node worker.mjs http://127.0.0.1:8765

import os from "node:os";
import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";

// ---- What it can do: a function for each task type. `signal` is aborted when the attempt has to stop. ----

const handlers = {
  "node.add": async ({ a, b }) => a + b,
  "node.fail": async ({ message }) => {
    throw new Error(message);
  },
  "node.wait": async (_parameters, { signal }) => {
    await sleep(3_600_000, undefined, { signal });
  },
};

// ---- Requests: an answer, or an error that says what to do ----

class Unavailable extends Error {} // no answer, or none that counts: try again
class Gone extends Error {} // the server doesn't know this worker: register anew

class Server {
  constructor(url, token) {
    this.base = `${url.replace(/\/$/, "")}/internal/workers`;
    this.headers = { "Content-Type": "application/json" };
    if (token) this.headers.Authorization = `Bearer ${token}`;
  }

  async ask(method, path, body, waitSeconds = 20, signals = []) {
    let response, answer;
    try {
      response = await fetch(`${this.base}/${path}`, {
        method,
        headers: this.headers,
        body: body === undefined ? undefined : JSON.stringify(body),
        signal: AbortSignal.any([AbortSignal.timeout((waitSeconds + 10) * 1000), ...signals]),
      });
      const text = await response.text();
      answer = text ? JSON.parse(text) : null;
    } catch (error) {
      throw new Unavailable(String(error.cause ?? error));
    }
    if (response.ok || response.status === 409 || response.status === 422) return { ok: response.ok, answer };
    if (response.status === 404) throw new Gone(answer?.detail);
    throw new Unavailable(`${response.status} ${answer?.code}: ${answer?.detail}`);
  }
}

const backOff = (failures) => sleep(Math.min(50 * 2 ** failures, 5000) * (0.5 + Math.random() / 2));

// ---- The worker ----

class Worker {
  constructor(server, capacity = 5) {
    this.server = server;
    this.capacity = capacity;
    this.held = new Map(); // task_id -> { task, controller, why }: from the poll until the result is answered
    this.cancelling = new Set();
    this.draining = false;
    this.doubtUntil = 0;
    this.changed = () => {};
  }

  async run() {
    await this.register();
    const beating = this.beat();
    await this.poll();
    while (this.held.size) await this.change();
    this.stopped = true;
    await this.server.ask("DELETE", this.id).catch(() => {}); // else it is missed, sooner or later
    await Promise.race([beating, sleep(100)]);
  }

  drain() {
    // First: finish what runs. Second: give it back.
    if (this.draining) for (const id of this.held.keys()) this.stop(id, "released");
    this.draining = true;
    this.hurry?.abort(); // tell the server now: it ends our poll
    this.changed();
  }

  async register() {
    for (let failures = 0; ; failures++) {
      try {
        const { ok, answer } = await this.server.ask("POST", "register", {
          task_types: Object.keys(handlers),
          capacity: this.capacity,
          version: process.version,
          host: os.hostname(),
          pid: process.pid,
        });
        if (!ok) throw new Error(answer.detail);
        [this.id, this.terms, this.lastBeat] = [answer.worker_id, answer, performance.now()];
        return console.log(`registered ${this.id}`);
      } catch (error) {
        if (!(error instanceof Unavailable)) throw error;
        console.error(error.message);
        await backOff(failures);
      }
    }
  }

  async poll() {
    for (let failures = 0; !this.draining; ) {
      const room = this.capacity - this.held.size;
      if (room <= 0) {
        await this.change();
        continue;
      }
      const wait_seconds = this.terms.max_wait_seconds;
      const body = { available_capacity: room, wait_seconds };
      // After a lost answer: whatever is ours by now, and we don't know of.
      if (performance.now() < this.doubtUntil) body.holding = this.leases();
      try {
        const { answer } = await this.server.ask("POST", `${this.id}/poll`, body, wait_seconds);
        for (const task of answer.tasks) this.attempt(task);
        failures = 0;
      } catch (error) {
        this.doubtUntil = performance.now() + (wait_seconds + 60) * 1000;
        if (error instanceof Gone) await this.renew();
        else await backOff(failures++);
      }
    }
  }

  async attempt(task) {
    const controller = new AbortController();
    const attempt = { task, controller, why: null };
    this.held.set(task.task_id, attempt);
    const limit = task.timeout_seconds && setTimeout(() => this.stop(task.task_id, "timeout"), task.timeout_seconds * 1000);
    let result;
    try {
      // A function that doesn't heed the signal is left to itself.
      const aborted = new Promise((_, reject) => controller.signal.addEventListener("abort", () => reject(controller.signal.reason)));
      const value = await Promise.race([handlers[task.task_type](task.parameters, { task, signal: controller.signal }), aborted]);
      result = { status: "completed", result: value ?? null };
    } catch (error) {
      result = { status: "failed", error: String(error?.stack ?? error) };
    }
    clearTimeout(limit);
    if (attempt.why === "timeout") result = { status: "failed", reason: "timeout", error: "the attempt ran out of time" };
    if (attempt.why === "released") result = { status: "released" };
    if (attempt.why === "cancelled" && result.status === "failed") result.status = "cancelled";
    if (attempt.why !== "lost") await this.report(attempt, result);
    if (this.held.get(task.task_id) === attempt) this.held.delete(task.task_id);
    this.cancelling.delete(task.task_id);
    this.changed();
  }

  async report(attempt, result) {
    const { task_id, lease_token } = attempt.task;
    for (let failures = 0; attempt.why !== "lost"; failures++) {
      try {
        const { ok, answer } = await this.server.ask("POST", `${this.id}/result`, { task_id, lease_token, ...result });
        if (answer.code === "result_not_storable") return this.report(attempt, { status: "failed", error: answer.detail });
        return console.log(ok ? `${task_id} ${answer.status}` : `${task_id} refused: ${answer.code}`);
      } catch (error) {
        if (error instanceof Gone) return; // it is somebody else's by now
        await backOff(failures);
      }
    }
  }

  async beat() {
    for (let failures = 0; !this.stopped; ) {
      const { heartbeat_interval_seconds, heartbeat_timeout_seconds, lease_seconds, max_wait_seconds } = this.terms;
      const wait_seconds = Math.min(heartbeat_interval_seconds * 0.8, lease_seconds / 3, max_wait_seconds);
      const before = performance.now();
      this.hurry = new AbortController();
      try {
        const { answer } = await this.server.ask("POST", `${this.id}/heartbeat`, {
          current_load: this.held.size,
          status: this.draining ? "draining" : "active",
          running: this.leases(),
          cancelling: [...this.cancelling],
          wait_seconds,
        }, wait_seconds, [this.hurry.signal]);
        this.lastBeat = before;
        failures = 0;
        for (const { task_id } of answer.lost) this.stop(task_id, "lost");
        for (const { task_id } of answer.cancel) this.stop(task_id, "cancelled");
        if (answer.drain && !this.draining) this.drain();
      } catch (error) {
        if (this.stopped) return;
        if (error instanceof Gone) await this.renew();
        else await backOff(failures++);
        // Cut off for this long, it must expect that its tasks were given to others.
        const patience = Math.min(heartbeat_timeout_seconds, lease_seconds) * 900;
        if (performance.now() - this.lastBeat > patience) this.loseAll();
      }
    }
  }

  async renew() {
    this.loseAll();
    this.renewal ??= this.register().finally(() => (this.renewal = null));
    await this.renewal;
  }

  loseAll() {
    for (const id of this.held.keys()) this.stop(id, "lost");
  }

  stop(taskId, why) {
    const attempt = this.held.get(taskId);
    if (!attempt || attempt.why) return;
    attempt.why = why;
    if (why === "cancelled") this.cancelling.add(taskId);
    attempt.controller.abort(new Error(why));
  }

  leases() {
    const ours = [...this.held.values()].filter(({ why }) => why !== "lost");
    return ours.map(({ task }) => ({ task_id: task.task_id, lease_token: task.lease_token }));
  }

  change() {
    return new Promise((resolve) => (this.changed = resolve));
  }
}

const worker = new Worker(new Server(process.argv[2] ?? "http://127.0.0.1:8765", process.env.TASKLIB_TOKEN));
for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => worker.drain());
await worker.run();
process.exit(0);
