// What the Node adapters share: the same protocol as adapter.py, the same files as marks.py.
// Node can't map files, so the count is written every few milliseconds; moments are CLOCK_MONOTONIC (hrtime).
const fs = require("fs");
const path = require("path");
const readline = require("readline");

const DATABASE_URL = process.env.BENCH_DATABASE_URL;
const OPTIONS = JSON.parse(process.env.BENCH_OPTIONS || "{}");
const RUN_DIR = process.env.BENCH_RUN_DIR || ".";
const PACKAGES = path.join(process.env.BENCH_LAB || ".", "node", "node_modules");
const NAP_MS = 3600 * 1000;
const FLUSH_MS = 5;
const FIRST_PING_SECONDS = 30;
const COUNT_BYTES = 24;
const LATENCY_BYTES = 24;
const LATENCY_SLOTS = 4096;
const WARM_UPS = 10;

const now = () => Number(process.hrtime.bigint()) / 1e9;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const counter = { file: null, count: 0, first: 0, last: 0 };

function flush() {
  const bytes = Buffer.alloc(COUNT_BYTES);
  bytes.writeBigUInt64LE(BigInt(counter.count), 0);
  bytes.writeDoubleLE(counter.first, 8);
  bytes.writeDoubleLE(counter.last, 16);
  fs.writeSync(counter.file, bytes, 0, COUNT_BYTES, 0);
}

function hit() {
  counter.count += 1;
  counter.last = now();
  if (counter.file === null) {
    counter.first = counter.last;
    counter.file = fs.openSync(path.join(RUN_DIR, `count.${process.pid}`), "w+");
    flush();
    setInterval(flush, FLUSH_MS);
  }
}

let latencyFile = null;

function latency() {
  if (latencyFile === null) {
    // Never truncating: the worker and the one who pings open the same file at the same time.
    const file = path.join(RUN_DIR, "latency");
    latencyFile = fs.openSync(file, fs.constants.O_RDWR | fs.constants.O_CREAT);
    if (fs.fstatSync(latencyFile).size < LATENCY_BYTES * LATENCY_SLOTS) {
      fs.ftruncateSync(latencyFile, LATENCY_BYTES * LATENCY_SLOTS);
    }
  }
  return latencyFile;
}

function writeMoments(position, ...moments) {
  const bytes = Buffer.alloc(8 * moments.length);
  moments.forEach((moment, i) => bytes.writeDoubleLE(moment, 8 * i));
  fs.writeSync(latency(), bytes, 0, bytes.length, position);
}

function started(number) {
  writeMoments(LATENCY_BYTES * number + 16, now());
  hit();
}

function hasStarted(number) {
  const bytes = Buffer.alloc(8);
  fs.readSync(latency(), bytes, 0, 8, LATENCY_BYTES * number + 16);
  return bytes.readDoubleLE(0) > 0;
}

async function nap() {
  hit();
  await sleep(NAP_MS);
}

function waitForGo() {
  console.log("READY");
  return new Promise((resolve) => readline.createInterface({ input: process.stdin }).once("line", resolve));
}

async function ping(adapter, count, gapSeconds) {
  for (let number = 0; number < count; number++) {
    const called = now();
    await adapter.submit("ping", number);
    writeMoments(LATENCY_BYTES * number, called, now());
    await sleep(gapSeconds * 1000);
    while (number === 0 && !hasStarted(0)) {
      if (now() - called > FIRST_PING_SECONDS) throw new Error("the first ping was not picked up");
      await sleep(gapSeconds * 1000);
    }
  }
}

async function submitTimed(adapter, command, kind, count) {
  for (let number = 0; command === "submit" && number < WARM_UPS; number++) await adapter.submit(kind, number);
  await waitForGo();
  const begun = now();
  if (command === "submit-many") {
    await adapter.submitMany(kind, count);
  } else {
    for (let number = 0; number < count; number++) await adapter.submit(kind, number);
  }
  console.log("RESULT " + JSON.stringify({ begun, ended: now() }));
}

async function main(adapter) {
  const [command, first, second] = process.argv.slice(2);
  if (command === "work") return adapter.work();
  if (command === "setup") {
    await adapter.setup();
  } else {
    await adapter.open();
    if (command === "ping") await ping(adapter, Number(first), Number(second));
    else await submitTimed(adapter, command, first, Number(second));
    await adapter.close();
  }
  process.exit(0);
}

const load = (name) => require(path.join(PACKAGES, name));

module.exports = { DATABASE_URL, OPTIONS, hit, started, nap, load, main };
