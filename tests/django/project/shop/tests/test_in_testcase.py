"""Tasks in a `TestCase`: everything happens in the test's transaction."""

from django.db import connection, transaction
from django.test import TestCase

import tasklib
from shop import tasks
from shop.models import Order
from tasklib import TaskNotFound
from tasklib.django.models import TaskRecord
from tasklib.django.test import captureTasks, inline
from tasklib.testing import assert_submitted


class SubmittedTasks(TestCase):
    def test_a_task_submitted_inside_atomic_is_gone_when_that_is_rolled_back(self):
        with captureTasks() as captured, self.assertRaises(ZeroDivisionError), transaction.atomic():
            task_id = tasks.send_receipt.submit_sync(order=1)
            self.assertEqual(task_id.get().state, "pending")
            raise ZeroDivisionError
        self.assertEqual(captured, [])
        with self.assertRaises(TaskNotFound):
            task_id.get()

    def test_a_task_belongs_to_the_savepoint_it_was_submitted_in(self):
        with transaction.atomic():
            kept = tasks.send_receipt.submit_sync(order=1)
            with self.assertRaises(ZeroDivisionError), transaction.atomic():
                tasks.send_receipt.submit_sync(order=2)
                raise ZeroDivisionError
        self.assertEqual([task.id for task in tasklib.sync.list_tasks()], [kept])

    def test_a_view_submits_in_its_transaction(self):
        with captureTasks() as captured:
            answer = self.client.post("/orders/", {"email": "ada@example.com"}).json()
        self.assertEqual([(t.name, t.kwargs) for t in captured], [("send_receipt", {"order": answer["order"]})])
        self.assertEqual(str(captured[0].id), answer["task"])

    async def test_an_async_view_submits_on_the_connection_of_the_test(self):
        with captureTasks_async() as captured:
            answer = (await self.async_client.post("/async-orders/", {"email": "ada@example.com"})).json()
            self.assertEqual([t.kwargs for t in await captured()], [{"order": answer["order"]}])

    async def test_the_awaitable_calls_see_what_the_test_has_not_committed(self):
        task_id = await tasks.send_receipt.submit(order=1)
        self.assertEqual((await task_id.get()).state, "pending")
        self.assertEqual(await task_id.cancel(), "cancelled")
        self.assertEqual(await TaskRecord.objects.filter(state="cancelled").acount(), 1)

    def test_many_tasks_are_submitted_in_the_transaction_whichever_way_they_are_stored(self):
        for count in (1, 5, 150):  # an INSERT, an INSERT from JSON, COPY
            with self.subTest(count=count), self.assertRaises(ZeroDivisionError), transaction.atomic():
                ids = tasklib.sync.submit_many(tasks.send_receipt, [{"order": n} for n in range(count)])
                self.assertEqual(TaskRecord.objects.filter(pk__in=ids).count(), count)
                raise ZeroDivisionError
            self.assertEqual(TaskRecord.objects.count(), 0)

    def test_an_idempotency_key_returns_the_first_task_in_and_outside_of_a_batch(self):
        keyed = tasks.send_receipt.options(idempotency_key="1")
        first = keyed.submit_sync(order=1)
        self.assertEqual(keyed.submit_sync(order=2), first)
        batch = tasklib.sync.submit_many([keyed.bind(order=3), tasks.send_receipt.bind(order=4)])
        self.assertEqual((batch[0], TaskRecord.objects.count()), (first, 2))

    def test_every_query_of_a_call_is_counted_by_django(self):
        with self.assertNumQueries(1):
            tasks.send_receipt.submit_sync(order=1)

    def test_looking_up_cancelling_replaying_and_searching_work_on_djangos_connection(self):
        client = tasklib.client.default.default_client()
        task_id = tasks.send_receipt.options(tags={"shop": "north"}).submit_sync(order=1)
        task = task_id.get()
        self.assertEqual((task.kwargs, task.tags), ({"order": 1}, {"shop": "north"}))
        self.assertIsNotNone(task.created_at.tzinfo)
        self.assertEqual(len(client.search_tasks("name:send_receipt").tasks), 1)
        self.assertEqual(client.explain_task(task_id).state, "pending")
        tasklib.sync.cancel_task(task_id)
        tasklib.sync.replay_task(task_id)
        self.assertEqual(client.count_states()["pending"].count, 1)
        client.pause(name="send_receipt")
        self.assertEqual(len(client.pauses()), 1)
        self.assertEqual([entry.action for entry in client.audit()][-1], "task.cancel")
        self.assertEqual(client.dead_letters(), [])
        self.assertEqual(client.workers(), [])
        self.assertEqual(assert_submitted(tasks.send_receipt, count=1)[0].id, task_id)

    def test_the_row_as_a_django_model_is_read_only(self):
        tasks.send_receipt.submit_sync(order=1)
        task = TaskRecord.objects.get(kwargs__order=1)
        self.assertEqual((task.state, task.tags, task.returned), ("pending", {}, None))
        with self.assertRaisesMessage(TypeError, "cancel_task"):
            task.save()


class RunTasks(TestCase):
    def setUp(self):
        self.order = Order.objects.create(email="ada@example.com")

    def receipts(self):
        self.order.refresh_from_db()
        return self.order.receipts

    def test_captured_tasks_run_at_the_end_of_the_block_in_the_tests_transaction(self):
        with captureTasks(run=True) as captured:
            task_id = tasks.send_receipt.submit_sync(order=self.order.pk)
            self.assertEqual(self.receipts(), 0)
        self.assertEqual(self.receipts(), 1)
        self.assertEqual([(t.state, t.result) for t in captured], [("completed", "ada@example.com")])
        self.assertEqual(task_id.result(timeout=0), "ada@example.com")
        self.assertTrue(connection.in_atomic_block)

    def test_tasks_that_a_task_submits_are_run_and_captured_too(self):
        with captureTasks(run=True) as captured:
            tasks.place_and_send.submit_sync(email="bob@example.com")
        self.assertEqual([t.name for t in captured], ["place_and_send", "send_receipt"])
        self.assertEqual(Order.objects.get(email="bob@example.com").receipts, 1)

    def test_an_async_task_that_is_captured_sees_the_data_of_the_test(self):
        with captureTasks(run=True):
            tasks.send_receipt_async.submit_sync(order=self.order.pk)
        self.assertEqual(self.receipts(), 1)

    def test_a_durable_function_is_left_to_a_worker(self):
        with captureTasks(run=True) as captured:
            tasks.remind.submit_sync(order=self.order.pk)
        self.assertEqual([t.state for t in captured], ["pending"])

    def test_what_a_captured_task_raises_comes_out_of_the_block(self):
        with self.assertRaisesMessage(ValueError, "no ink"), captureTasks(run=True):
            task_id = tasks.fail.options(max_retries=0).submit_sync(message="no ink")
        self.assertEqual(task_id.get().state, "dead_letter")

    def test_inline_mode_runs_sync_and_async_tasks_on_the_connection_of_the_test(self):
        with inline() as ran:
            tasks.send_receipt.submit_sync(order=self.order.pk)
            tasks.send_receipt_async.submit_sync(order=self.order.pk)
        self.assertEqual(self.receipts(), 2)
        self.assertEqual([task.result for task in ran.tasks], ["ada@example.com"] * 2)
        self.assertEqual(TaskRecord.objects.count(), 0)

    async def test_inline_mode_does_so_for_asynchronous_callers(self):
        async with inline():
            await tasks.send_receipt.submit(order=self.order.pk)
            await tasks.send_receipt_async.submit(order=self.order.pk)
        await self.order.arefresh_from_db()
        self.assertEqual(self.order.receipts, 2)


class captureTasks_async:
    """`captureTasks` asks the database at its end, which asynchronous code may not: the list is awaited instead."""

    def __enter__(self):
        from asgiref.sync import sync_to_async

        self.context = captureTasks()
        captured = self.context.__enter__()

        async def end():
            await sync_to_async(self.context.__exit__)(None, None, None)
            return captured

        return end

    def __exit__(self, *_):
        pass
