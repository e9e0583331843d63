// Graphile Worker. Options: `concurrency`, `pool`, `localQueue` (rows fetched ahead), `batch` of addJobs.
const { DATABASE_URL, OPTIONS, hit, started, nap, load, main } = require("./adapter.js");

const graphile = load("graphile-worker");
const logger = new graphile.Logger(() => () => {});
const connection = { connectionString: DATABASE_URL, logger };
let utils;

main({
  async setup() {
    await graphile.runMigrations(connection);
  },
  async open() {
    utils = await graphile.makeWorkerUtils(connection);
  },
  async close() {
    await utils.release();
  },
  async submit(kind, number) {
    await utils.addJob(kind, { number });
  },
  async submitMany(kind, count) {
    for (let begun = 0; begun < count; begun += OPTIONS.batch) {
      const length = Math.min(OPTIONS.batch, count - begun);
      await utils.addJobs(Array.from({ length }, () => ({ identifier: kind, payload: {} })));
    }
  },
  async work() {
    await graphile.run({
      ...connection,
      concurrency: OPTIONS.concurrency,
      maxPoolSize: OPTIONS.pool,
      pollInterval: 2000,
      noHandleSignals: true,
      taskList: { noop: async () => hit(), ping: async (payload) => started(payload.number), nap },
      preset: {
        worker: {
          localQueue: { size: OPTIONS.localQueue },
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0,
          concurrentJobs: OPTIONS.concurrency,
          maxPoolSize: OPTIONS.pool,
        },
      },
    });
  },
});
