// pg-boss. Options: `batch` of a fetch, `workers` per queue, `insertBatch`, `pool`.
const { DATABASE_URL, OPTIONS, hit, started, nap, load, main } = require("./adapter.js");

const exported = load("pg-boss");
const PgBoss = exported.PgBoss || exported;
const QUEUES = ["noop", "ping", "nap"];
const POLL_SECONDS = 0.5; // the least it allows
let boss;

async function connect() {
  const made = new PgBoss({ connectionString: DATABASE_URL, max: OPTIONS.pool });
  made.on("error", () => {});
  await made.start();
  return made;
}

main({
  async setup() {
    boss = await connect();
    for (const name of QUEUES) await boss.createQueue(name);
    await boss.stop({ graceful: false });
  },
  async open() {
    boss = await connect();
  },
  async close() {
    await boss.stop({ graceful: false });
  },
  async submit(kind, number) {
    await boss.send(kind, { number });
  },
  async submitMany(kind, count) {
    for (let begun = 0; begun < count; begun += OPTIONS.insertBatch) {
      const length = Math.min(OPTIONS.insertBatch, count - begun);
      await boss.insert(Array.from({ length }, () => ({ name: kind, data: {} })));
    }
  },
  async work() {
    boss = await connect();
    const options = { batchSize: OPTIONS.batch, pollingIntervalSeconds: POLL_SECONDS };
    for (let worker = 0; worker < OPTIONS.workers; worker++) {
      await boss.work("noop", options, async (jobs) => jobs.forEach(hit));
    }
    await boss.work("ping", options, async (jobs) => jobs.forEach((job) => started(job.data.number)));
    await boss.work("nap", { ...options, batchSize: 1 }, nap);
  },
});
