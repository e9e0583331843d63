"""The backend for `django.tasks`."""

from datetime import UTC, datetime, timedelta

from django.db import transaction
from django.tasks import TaskResultStatus, default_task_backend, task_backends
from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist, TaskResultMismatch
from django.tasks.signals import task_enqueued, task_finished, task_started
from django.test import TestCase, TransactionTestCase
from django.utils import timezone

from shop.django_tasks import OutOfInk, count_receipt, count_receipt_async, describe, print_later, print_receipt
from shop.models import Order
from tasklib.django.models import TaskRecord
from tasklib.django.test import captureTasks, inline
from tasklib.testing import drain_sync


class Enqueued(TestCase):
    def setUp(self):
        self.order = Order.objects.create(email="ada@example.com")

    def test_a_task_of_djangos_runs_with_its_arguments_and_has_a_result(self):
        with captureTasks(run=True):
            result = count_receipt.enqueue(self.order.pk, by=2)
            self.assertEqual((result.status, result.args, result.kwargs), ("READY", [self.order.pk], {"by": 2}))
        result.refresh()
        self.assertEqual((result.status, result.return_value), (TaskResultStatus.SUCCESSFUL, "ada@example.com"))
        self.assertEqual((result.task, result.attempts, result.errors), (count_receipt, 1, []))
        self.assertLessEqual(result.enqueued_at, result.finished_at)
        self.order.refresh_from_db()
        self.assertEqual(self.order.receipts, 2)

    def test_a_task_enqueued_inside_atomic_is_gone_when_that_is_rolled_back(self):
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            result = count_receipt.enqueue(1)
            raise ZeroDivisionError
        with self.assertRaises(TaskResultDoesNotExist):
            default_task_backend.get_result(result.id)

    async def test_asynchronous_callers_and_tasks_work_alike(self):
        result = await count_receipt_async.aenqueue(self.order.pk)
        self.assertEqual((await count_receipt_async.aget_result(result.id)).task.priority, -5)
        async with inline() as ran:
            await count_receipt_async.aenqueue(self.order.pk)
        self.assertEqual(ran.tasks[0].result, "counted")

    def test_priority_run_after_queue_and_backend_are_kept(self):
        later = timezone.now() + timedelta(hours=1)
        result = count_receipt.using(priority=-95, run_after=later).enqueue(1)
        row = TaskRecord.objects.get(pk=result.id)
        self.assertEqual((row.priority, row.scheduled_at, row.queue, row.max_retries), (-10, later, "default", 0))
        found = count_receipt.get_result(result.id)
        self.assertEqual((found.task.priority, found.task.run_after), (-95, later))
        self.assertEqual(count_receipt.get_result(count_receipt.using(priority=7).enqueue(1).id).task.priority, 7)
        patient = print_later.get_result(print_later.enqueue().id)
        self.assertEqual((patient.backend, patient.task.queue_name), ("patient", "slow"))

    def test_priorities_below_0_keep_their_order(self):
        priorities = [-100, -99, -50, -11, -10, -1, 0, 1, 100]
        for priority in priorities:
            count_receipt.using(priority=priority).enqueue(priority)
        rows = TaskRecord.objects.order_by("priority", "created_at", "pk").values_list("priority", flat=True)
        stored = {row.kwargs["args"][0]: row.priority for row in TaskRecord.objects.all()}
        self.assertEqual([stored[p] for p in priorities], [-10, -10, -5, -2, -1, -1, 0, 1, 100])
        self.assertEqual(len(rows), len(priorities))

    def test_the_context_names_the_task_and_the_attempt(self):
        with captureTasks(run=True):
            result = describe.enqueue()
        expected = {"id": result.id, "attempt": 1, "status": "RUNNING", "queue": "default"}
        self.assertEqual(describe.get_result(result.id).return_value, expected)

    def test_a_failed_task_has_its_error_with_class_and_traceback(self):
        with self.assertRaises(OutOfInk), captureTasks(run=True):
            result = print_receipt.enqueue()
        result.refresh()
        self.assertEqual((result.status, result.attempts), (TaskResultStatus.FAILED, 1))
        self.assertIs(result.errors[0].exception_class, OutOfInk)
        self.assertTrue(result.errors[0].traceback.endswith("OutOfInk: no ink\nand: no paper\n"))

    def test_signals_are_sent_when_a_task_is_enqueued_started_and_finished(self):
        heard = []

        def hear(sender, task_result, signal, **_):
            heard.append((sender.__name__, task_result.status.value))

        for signal in (task_enqueued, task_started, task_finished):
            signal.connect(hear)
            self.addCleanup(signal.disconnect, hear)
        with captureTasks(run=True):
            count_receipt.enqueue(self.order.pk)
        self.assertEqual(heard, [("DjangoTaskBackend", s) for s in ("READY", "RUNNING", "SUCCESSFUL")])

    def test_what_django_refuses_is_refused(self):
        with self.assertRaisesMessage(InvalidTask, "Queue 'unknown' is not valid"):
            count_receipt.using(queue_name="unknown")
        with self.assertRaisesMessage(InvalidTask, "must be an aware datetime"):
            count_receipt.using(run_after=datetime(2030, 1, 1))
        with self.assertRaises(TaskResultMismatch):
            describe.get_result(count_receipt.enqueue(1).id)
        for missing in ("123", "019a0000-0000-7000-8000-000000000000"):
            with self.assertRaises(TaskResultDoesNotExist):
                default_task_backend.get_result(missing)
        with self.assertRaises(TypeError):
            count_receipt.enqueue(datetime.now(UTC))

    def test_check_names_unknown_options(self):
        self.assertEqual(task_backends["patient"].check(), [])
        backend = type(default_task_backend._connections["default"])("x", {"OPTIONS": {"retries": 3}})
        self.assertEqual([problem.id for problem in backend.check()], ["tasklib.E003"])


class Worked(TransactionTestCase):
    def test_a_worker_runs_tasks_of_both_kinds_and_retries_as_the_options_say(self):
        order = Order.objects.create(email="ada@example.com")
        done = count_receipt.enqueue(order.pk)
        done_async = count_receipt_async.enqueue(order.pk)
        failed = print_receipt.enqueue()
        retried = print_later.enqueue()
        drained = drain_sync(until_done=True)
        self.assertEqual(drained.counts, {"completed": 3, "dead_letter": 1})
        for result in (done, done_async, failed, retried):
            result.refresh()
        self.assertEqual([r.status for r in (done, done_async, failed)], ["SUCCESSFUL", "SUCCESSFUL", "FAILED"])
        self.assertEqual((retried.return_value, retried.attempts, len(retried.errors)), (3, 3, 2))
        order.refresh_from_db()
        self.assertEqual(order.receipts, 2)
