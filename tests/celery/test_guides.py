"""The programs of Celery's guides, with the import changed alone, while `tasklib worker` runs their tasks.

Those of "First steps", "Next steps", "Calling tasks" and "Canvas", in the order of the guides. A timeout stands where
the guides wait for ever, and what they print is compared. Left out: stamps, `result.graph`, publishers, and commands of
Celery's, all of which TaskLib refuses by name.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FIRST_STEPS = """
from tasklib.celery import Celery

app = Celery('tasks', backend='rpc://', broker='pyamqp://guest@localhost//')
app.config_from_object('celeryconfig')

@app.task
def add(x, y):
    return x + y
"""
CELERYCONFIG = """
broker_url = 'pyamqp://'
result_backend = 'rpc://'

task_serializer = 'json'
result_serializer = 'json'
accept_content = ['json']
timezone = 'Europe/Oslo'
enable_utc = True
task_routes = {
    'tasks.add': 'low-priority',
}
task_annotations = {
    'tasks.add': {'rate_limit': '10/m'}
}
"""
CALL_FIRST_STEPS = """
from tasks import add
result = add.delay(4, 4)
print(result.get(timeout=60), result.ready(), result.get(propagate=False), result.traceback)
print(result.queue, add.app.conf.timezone)
"""
NEXT_STEPS = """
from tasklib.celery import Celery

app = Celery('proj', broker='amqp://', backend='rpc://', include=['proj.tasks'])
app.conf.update(result_expires=3600)

if __name__ == '__main__':
    app.start()
"""
TASKS = """
import os
import time

from .celery import app

@app.task
def add(x, y):
    return x + y

@app.task
def mul(x, y):
    return x * y

@app.task
def xsum(numbers):
    return sum(numbers)

tsum = xsum

@app.task
def fail():
    raise ValueError('something something')

@app.task
def error_handler(request, exc, traceback):
    with open(os.path.join('errors', request.id), 'a') as fh:
        print('Task {0} raised exception: {1!r}'.format(request.id, exc), file=fh)

@app.task
def log_result(value):
    with open(os.path.join('errors', 'results'), 'a') as fh:
        print(value, file=fh)

@app.task
def reset_buffers():
    with open(os.path.join('errors', 'buffers'), 'a') as fh:
        print('reset', file=fh)

@app.task(bind=True)
def hello(self, a, b):
    time.sleep(1)
    self.update_state(state="PROGRESS", meta={'progress': 50})
    time.sleep(1)
    self.update_state(state="PROGRESS", meta={'progress': 90})
    time.sleep(1)
    return 'hello world: %i' % (a+b)

@app.task
def create_user(username, first, last, email):
    return username

@app.task
def import_contacts(user):
    return 'contacts of ' + user

@app.task
def send_welcome_email(user):
    return 'welcome ' + user
"""
CALL_NEXT_STEPS = """
from tasklib.celery import chain, chord, group
from proj.celery import app
from proj.tasks import add, mul, xsum

print(add.delay(2, 2).get(timeout=60))
print(add.apply_async((2, 2), queue='lopri', countdown=0).get(timeout=60))
print(add(2, 2))
try:
    add.delay(2, '2').get(timeout=60)
except TypeError as e:
    print('TypeError')
res = add.delay(2, '2')
print(type(res.get(propagate=False, timeout=60)).__name__, res.failed(), res.successful(), res.state)
print(app.AsyncResult('this-id-does-not-exist').state)
print(add.signature((2, 2), countdown=10), add.s(2, 2))
s1 = add.s(2, 2)
print(s1.delay().get(timeout=60))
s2 = add.s(2)
print(s2.delay(8).get(timeout=60))
print(group(add.s(i, i) for i in range(10))().get(timeout=60))
g = group(add.s(i) for i in range(10))
print(g(10).get(timeout=60))
print(chain(add.s(4, 4) | mul.s(8))().get(timeout=60))
g = chain(add.s(4) | mul.s(8))
print(g(4).get(timeout=60))
print((add.s(4, 4) | mul.s(8))().get(timeout=60))
print(chord((add.s(i, i) for i in range(10)), xsum.s())().get(timeout=60))
print((group(add.s(i, i) for i in range(10)) | xsum.s())().get(timeout=60))
app.conf.update(
    task_routes = {
        'proj.tasks.add': {'queue': 'hipri'},
    },
)
print(add.delay(2, 2).queue)
"""
SAID_OF_NEXT_STEPS = """4
4
4
TypeError
TypeError True False FAILURE
PENDING
proj.tasks.add(2, 2) proj.tasks.add(2, 2)
4
10
[0, 2, 4, 6, 8, 10, 12, 14, 16, 18]
[10, 11, 12, 13, 14, 15, 16, 17, 18, 19]
64
64
64
90
90
hipri
"""
CALLING = """
import os, time
from datetime import datetime, timedelta, timezone
from tasklib.celery import group
from tasklib.celery.utils.log import get_logger
from proj.tasks import add, error_handler, fail, hello, log_result

logger = get_logger(__name__)

def lines(name):
    while not os.path.exists(os.path.join('errors', name)):
        time.sleep(0.05)
    return open(os.path.join('errors', name)).read().splitlines()

print(add.s(2, 2).apply_async().get(timeout=60))
print(add.apply_async((2, 2), link=add.s(16)).get(timeout=60))
print(add.apply_async((2, 2), link_error=error_handler.s()).get(timeout=60))
print(add.apply_async((2, 2), link=[add.s(16), log_result.s()]).get(timeout=60), lines('results'))
failed = fail.apply_async(link_error=error_handler.s())
print(lines(failed.id) == ["Task %s raised exception: ValueError('something something')" % failed.id])
seen = []
def on_raw_message(body):
    seen.append(body)
a, b = 1, 1
r = hello.apply_async(args=(a, b))
print(r.get(on_message=on_raw_message, propagate=False, timeout=60))
print({body['status'] for body in seen[:-1]} <= {'PROGRESS'}, seen[-1]['status'], seen[-1]['result'])
print(add.apply_async((2, 2), countdown=1).get(timeout=60))
tomorrow = datetime.now(timezone.utc) + timedelta(days=1)
later = add.apply_async((2, 2), eta=tomorrow)
print(later.state)
later.revoke()
print(add.apply_async((10, 10), expires=60).get(timeout=60))
kwargs = {}
print(add.apply_async((10, 10), kwargs,
                      expires=datetime.now(timezone.utc) + timedelta(days=1)).get(timeout=60))
print(add.apply_async((2, 2), retry=False).get(timeout=60))
print(add.apply_async((2, 2), retry=True, retry_policy={
    'max_retries': 3,
    'interval_start': 0,
    'interval_step': 0.2,
    'interval_max': 0.2,
    'retry_errors': None,
}).get(timeout=60))
try:
    add.delay(2, 2)
except add.OperationalError as exc:
    logger.exception('Sending task raised: %r', exc)
print(add.apply_async((10, 10), serializer='json').get(timeout=60))
print(add.apply_async((2, 2), compression='zlib').get(timeout=60))
numbers = [(2, 2), (4, 4), (8, 8), (16, 16)]
res = group(add.s(i, j) for i, j in numbers).apply_async()
print(res.get(timeout=60))
print(add.apply_async((2, 2), queue='priority.high').get(timeout=60))
print(add.apply_async((2, 2), headers={"periodic_task_name": "task_name"}).get(timeout=60))
print(add.apply_async((2, 2), ignore_result=True).get(timeout=60))
"""
SAID_OF_CALLING = """4
4
4
4 ['4']
True
hello world: 2
True SUCCESS hello world: 2
4
PENDING
20
20
4
4
20
4
[4, 8, 16, 32]
4
4
None
"""
CANVAS = """
import os, time
from tasklib.celery import chain, chord, group, maybe_signature, signature
from proj.tasks import *
from proj.tasks import tsum

def lines(name):
    while not os.path.exists(os.path.join('errors', name)):
        time.sleep(0.05)
    return open(os.path.join('errors', name)).read().splitlines()

print(signature('proj.tasks.add', args=(2, 2), countdown=10))
s = add.signature((2, 2), {'debug': True}, countdown=10)
print(s.args, s.kwargs, s.options)
print(add.s(2, 2)(), signature('proj.tasks.add', args=(2, 2), countdown=0).delay().get(timeout=60))
print(add.signature((2, 2), countdown=1).apply_async(countdown=0).get(timeout=60))
print(add.s(2, 2).set(countdown=0).apply_async().get(timeout=60))
partial = add.s(2)
print(partial.delay(4).get(timeout=60), partial.apply_async((4,)).get(timeout=60))
print(add.s(2).clone(args=(4,), kwargs={'debug': True}))
add.apply_async((2, 2), link=reset_buffers.signature(immutable=True))
print(lines('buffers')[0])
add.apply_async((2, 2), link=reset_buffers.si())
print(~add.s(2, 2))
print(add.signature((2, 2), immutable=True).delay().get(timeout=60))
res = chain(add.s(2, 2), add.s(4), add.s(8))()
print(res.get(timeout=60), res.parent.get(timeout=60), res.parent.parent.get(timeout=60))
print((add.s(2, 2) | add.s(4) | add.s(8))().get(timeout=60))
res = (add.si(2, 2) | add.si(4, 4) | add.si(8, 8))()
print(res.get(timeout=60), res.parent.get(timeout=60), res.parent.parent.get(timeout=60))
res = chord((add.s(i, i) for i in range(10)), tsum.s())()
print(res.get(timeout=60))
print(chord((add.s(i, i) for i in range(10)), add.si(1, 2)).apply_async().get(timeout=60))
c1 = (add.s(4) | mul.s(8))
print(c1(16).get(timeout=60))
c2 = (add.s(4, 16) | mul.s(2) | (add.s(4) | mul.s(8)))
print(c2().get(timeout=60))
c3 = (group(add.s(i, i) for i in range(10)) | tsum.s())
print(c3().get(timeout=60))
new_user_workflow = (create_user.s() | group(
                     import_contacts.s(),
                     send_welcome_email.s()))
print(new_user_workflow.delay(username='artv',
                        first='Art',
                        last='Vandelay',
                        email='art@vandelay.com').get(timeout=60))
res = (add.s(4, 4) | group(add.si(i, i) for i in range(10)))()
print(res.get(timeout=60), res.parent.get(timeout=60))
res = add.apply_async((2, 2), link=mul.s(16))
print(res.get(timeout=60), len(res.children), res.children[0].get(timeout=60))
print([value for result, value in res.collect()])
print([value for result, value in res.collect(intermediate=True)])
s = add.s(2, 2)
s.link(mul.s(4))
s.link(log_result.s())
print(s.delay().get(timeout=60))
add.s(2, 2).on_error(error_handler.s()).delay()
print(chain(add.s(4, 4), mul.s(8), mul.s(10)))
res = chain(add.s(4, 4), mul.s(8), mul.s(10))()
print(res.get(timeout=60), res.parent.get(timeout=60), res.parent.parent.get(timeout=60))
print(res.parent.parent.get_leaf())
g = group(add.s(2, 2), add.s(4, 4))
print(g().get(timeout=60))
g = group(fail.s(), fail.s())
g.link_error(error_handler.s())
res = g()
print([len(lines(each.id)) for each in res])
job = group([add.s(2, 2), add.s(4, 4), add.s(8, 8), add.s(16, 16), add.s(32, 32)])
result = job.apply_async()
print(result.get(timeout=60), result.ready(), result.successful(), result.failed(), result.completed_count())
print(chain(add.s(2, 2), group(add.s(1)), add.s(1))().get(timeout=60))
print(chain(add.s(2, 2), group(add.s(1), add.s(2)), tsum.s())().get(timeout=60))
print(chord(add.s(i, i) for i in range(100))(tsum.s()).get(timeout=60))
callback = tsum.s()
header = [add.s(i, i) for i in range(100)]
print(chord(header)(callback).get(timeout=60))
c = chord([add.s(4, 4), fail.si(), add.s(8, 8)])
try:
    c(tsum.s()).get(timeout=60)
except ValueError as e:
    print(e)
c = (group([add.s(1, 1), fail.si()]) | tsum.s().on_error(error_handler.s())).delay()
print(len(lines(c.id)))
print(~tsum.map([list(range(10)), list(range(100))]))
print(~add.starmap(zip(range(10), range(10))))
print(add.starmap(zip(range(10), range(10))).apply_async(countdown=1).get(timeout=60)[-1])
res = add.chunks(zip(range(100), range(100)), 10)()
print(res.get(timeout=60)[9])
group = add.chunks(zip(range(100), range(100)), 10).group()
print([task.options['countdown'] for task in group.skew(start=1, stop=10).tasks])
print(group.skew(start=0, stop=0)().get(timeout=60)[0])
"""
SAID_OF_CANVAS = """proj.tasks.add(2, 2)
(2, 2) {'debug': True} {'countdown': 10}
4 4
4
4
6 6
proj.tasks.add(4, 2, debug=True)
reset
4
4
16 8 4
16
16 8 4
90
3
160
352
90
['contacts of artv', 'welcome artv']
[0, 2, 4, 6, 8, 10, 12, 14, 16, 18] 8
4 1 64
[4, 64]
[4, 64]
4
proj.tasks.add(4, 4) | proj.tasks.mul(8) | proj.tasks.mul(10)
640 64 8
640
[4, 8]
[1, 1]
[4, 8, 16, 32, 64] True True False 5
6
11
9900
9900
something something
1
[45, 4950]
[0, 2, 4, 6, 8, 10, 12, 14, 16, 18]
18
[180, 182, 184, 186, 188, 190, 192, 194, 196, 198]
[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]
[0, 2, 4, 6, 8, 10, 12, 14, 16, 18]
"""


def run(directory: Path, database_url: str, module: str, *programs: str) -> list[str]:
    """What programs print that call the tasks of a module, while `tasklib worker` runs it."""
    env = {**os.environ, "TASKLIB_DATABASE_URL": database_url, "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "tasklib", "worker", module, "--quiet"]
    worker = subprocess.Popen(command, cwd=directory, env=env)
    try:
        done = [
            subprocess.run(
                [sys.executable, "-c", program], cwd=directory, env=env, capture_output=True, text=True, timeout=250
            )
            for program in programs
        ]
    finally:
        worker.terminate()
        worker.wait(60)
    assert [each.stderr for each in done] == [""] * len(done)
    return [each.stdout for each in done]


@pytest.mark.long
def test_the_programs_of_celerys_first_steps_run(tmp_path: Path, database_url: str) -> None:
    (tmp_path / "tasks.py").write_text(FIRST_STEPS)
    (tmp_path / "celeryconfig.py").write_text(CELERYCONFIG)
    assert run(tmp_path, database_url, "tasks", CALL_FIRST_STEPS) == ["8 True 8 None\nlow-priority Europe/Oslo\n"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("program", "said"),
    [
        pytest.param(CALL_NEXT_STEPS, SAID_OF_NEXT_STEPS, id="next steps"),
        pytest.param(CALLING, SAID_OF_CALLING, id="calling"),
        pytest.param(CANVAS, SAID_OF_CANVAS, id="canvas"),
    ],
)
def test_the_programs_of_celerys_guides_run(program: str, said: str, tmp_path: Path, database_url: str) -> None:
    package = tmp_path / "proj"
    package.mkdir()
    (tmp_path / "errors").mkdir()
    (package / "__init__.py").touch()
    (package / "celery.py").write_text(NEXT_STEPS)
    (package / "tasks.py").write_text(TASKS)
    assert run(tmp_path, database_url, "proj.celery", program) == [said]


@pytest.mark.long
def test_with_the_prefork_pool_tasks_run_in_child_processes(tmp_path: Path, database_url: str) -> None:
    (tmp_path / "forked.py").write_text(
        "import os\nfrom tasklib.celery import Celery\napp = Celery('forked')\napp.conf.worker_pool = 'prefork'\n"
        "@app.task(bind=True)\ndef pids(self): return [os.getpid(), os.getppid(), self.request.retries]\n"
    )
    program = "from forked import pids; import os; print(len(set(pids.delay().get(timeout=60))), os.getpid() > 0)"
    assert run(tmp_path, database_url, "forked", program) == ["3 True\n"]
