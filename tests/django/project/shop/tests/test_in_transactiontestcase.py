"""Tasks in a `TransactionTestCase`: they are committed, and a real worker runs them."""

import time

from django.core.management import call_command
from django.db import connection, transaction
from django.test import TransactionTestCase

import tasklib
from shop import tasks
from shop.models import Order
from tasklib.django.models import TaskRecord
from tasklib.testing import drain_sync


class Worked(TransactionTestCase):
    def setUp(self):
        self.assertEqual(TaskRecord.objects.count(), 0, "the tasks of the test before are still there")
        self.order = Order.objects.create(email="ada@example.com")

    def receipts(self):
        self.order.refresh_from_db()
        return self.order.receipts

    def test_outside_of_atomic_a_submission_commits_by_itself(self):
        self.assertFalse(connection.in_atomic_block)
        task_id = tasks.send_receipt.submit_sync(order=self.order.pk)
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            raise ZeroDivisionError
        self.assertEqual(drain_sync().counts, {"completed": 1})
        self.assertEqual((self.receipts(), task_id.result(timeout=0)), (1, "ada@example.com"))

    def test_a_worker_runs_async_tasks_and_tasks_in_children_with_djangos_orm(self):
        tasks.send_receipt_async.submit_sync(order=self.order.pk)
        in_child = tasks.send_receipt_in_child.submit_sync(order=self.order.pk)
        self.assertEqual(drain_sync().counts, {"completed": 2})
        self.assertEqual(self.receipts(), 2)
        self.assertEqual(in_child.result(timeout=0)["settings"], "mysite.settings")

    def test_a_durable_function_uses_djangos_orm(self):
        reminded = tasks.remind.submit_sync(order=self.order.pk)
        self.assertEqual(drain_sync().counts, {"completed": 1})
        self.assertEqual(reminded.result(timeout=0), "ada@example.com")

    def test_a_task_submits_in_its_own_transaction(self):
        placed = tasks.place_and_send.submit_sync(email="bob@example.com")
        self.assertEqual(drain_sync().counts, {"completed": 2})
        self.assertEqual(Order.objects.get(pk=placed.result(timeout=0)).receipts, 1)

    def test_a_connection_that_a_task_leaves_broken_is_replaced_before_the_next(self):
        tasks.leave_broken.submit_sync()
        tasks.backend_pid.submit_sync()
        self.assertEqual(drain_sync(concurrency=1).counts, {"completed": 2})

    def test_async_tasks_that_run_at_the_same_time_have_a_connection_each(self):
        ids = tasklib.sync.submit_many(tasks.wait_for_each_other, [{"others": 3}] * 3)
        self.assertEqual(drain_sync(concurrency=3).counts, {"completed": 3})
        self.assertEqual([tasklib.sync.wait_for(id_, 0) for id_ in ids], [3, 3, 3])

    def test_no_connection_of_a_task_outlives_the_worker(self):
        tasks.send_receipt.submit_sync(order=self.order.pk)
        tasks.send_receipt_async.submit_sync(order=self.order.pk)
        drain_sync()
        while self.sessions_of_others():  # threads end in their own time
            time.sleep(0.01)

    def sessions_of_others(self):
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
                " AND application_name = 'the shop'"
            )
            return cursor.fetchone()[0]

    def tearDown(self):
        while self.sessions_of_others():  # or the database could not be dropped
            time.sleep(0.01)

    def test_the_command_runs_from_code(self):
        tasks.send_receipt.submit_sync(order=self.order.pk)
        call_command("tasklib", "worker", "--burst", "--quiet")
        self.assertEqual(self.receipts(), 1)

    async def test_an_asynchronous_caller_outside_of_atomic_commits(self):
        await tasks.send_receipt.submit(order=self.order.pk)
        self.assertEqual(await TaskRecord.objects.filter(state="pending").acount(), 1)
