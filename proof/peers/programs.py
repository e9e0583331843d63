"""The programs: each system as its own documentation says, with whatever recovery it documents switched on.

A program is called with what to do: `setup`, `submit COUNT`, `work` or `left`. A task appends its number to a file,
sleeps, and appends it again: so that beginnings, repetitions and ends can be counted whatever the system records.
"""

from __future__ import annotations

_COMMON = """
import asyncio, os, sys
URL, LOG, SECONDS = os.environ["PEERS_URL"], os.environ["PEERS_LOG"], float(os.environ["PEERS_TASK_SECONDS"])
FILE = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def note(what, number):
    os.write(FILE, f"{what} {number}\\n".encode())

async def work(number):
    note("begin", number)
    await asyncio.sleep(SECONDS)
    note("end", number)

async def main(do, *rest):
    await {"setup": setup, "submit": submit, "work": run, "left": left}[do](*map(int, rest))
"""

TASKLIB = (
    _COMMON
    + """
from tasklib import AsyncClient, Config, Worker, task
SETTINGS = dict(heartbeat_interval_seconds=3.0, heartbeat_timeout_seconds=10.0, sweep_interval_seconds=3.0,
                leader_lease_seconds=5.0)

@task(name="peers.work", max_retries=5)
async def job(number: int) -> None:
    await work(number)

async def setup():
    from tasklib.migrations import migrate
    migrate(Config(URL))

async def submit(count):
    async with AsyncClient(URL) as client:
        await client.submit_many(job, [{"number": n} for n in range(count)])

async def run():
    await Worker(Config(URL, **SETTINGS), concurrency=10).run()

async def left():
    async with AsyncClient(URL) as client:
        print(len(await client.list_tasks(state=["pending", "failed", "running", "dead_letter"], limit=10000)))
"""
)

PROCRASTINATE = (
    _COMMON
    + """
import procrastinate
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=URL, min_size=1, max_size=12))

@app.task(name="work", retry=5)
async def job(number):
    await work(number)

# As its how-to on stalled jobs says: a periodic task looks for them. Every minute is as often as cron goes.
@app.periodic(cron="* * * * *")
@app.task(queueing_lock="retry_stalled_jobs", pass_context=True)
async def retry_stalled_jobs(context, timestamp):
    for stalled in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=10):
        await app.job_manager.retry_job(stalled)

async def setup():
    async with app.open_async():
        await app.schema_manager.apply_schema_async()

async def submit(count):
    async with app.open_async():
        await job.batch_defer_async(*[{"number": n} for n in range(count)])

async def run():
    async with app.open_async():
        await app.run_worker_async(concurrency=10, update_heartbeat_interval=3, stalled_worker_timeout=10)

async def left():
    async with app.open_async():
        print(len([j for j in await app.job_manager.list_jobs_async(task="work") if j.status != "succeeded"]))
"""
)

PGQUEUER = (
    _COMMON
    + """
from datetime import timedelta
import asyncpg
from pgqueuer import AsyncpgDriver, AsyncpgPoolDriver, PgQueuer, Queries

async def setup():
    connection = await asyncpg.connect(URL)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()

async def submit(count):
    connection = await asyncpg.connect(URL)
    payloads = [str(n).encode() for n in range(count)]
    await Queries(AsyncpgDriver(connection)).enqueue(["work"] * count, payloads, [0] * count)
    await connection.close()

async def run():
    pool = await asyncpg.create_pool(URL, min_size=2, max_size=12)
    worker = PgQueuer(AsyncpgPoolDriver(pool))

    @worker.entrypoint("work")
    async def job(job):
        await work(int(job.payload))

    await worker.run(batch_size=10, max_concurrent_tasks=20, dequeue_timeout=timedelta(seconds=2),
                     heartbeat_timeout=timedelta(seconds=10))

async def left():
    connection = await asyncpg.connect(URL)
    print(await connection.fetchval("SELECT count(*) FROM pgqueuer"))
    await connection.close()
"""
)

_END = "\nasyncio.run(main(*sys.argv[1:]))\n"
PROGRAMS = {"tasklib": TASKLIB + _END, "procrastinate": PROCRASTINATE + _END, "pgqueuer": PGQUEUER + _END}
