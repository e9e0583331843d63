"""manage.py test"""

from django.test import TestCase, TransactionTestCase
from tasklib.django.test import captureTasks
from tasklib.testing import drain_sync

from shop.models import Order


class OrderTest(TestCase):
    def test_an_order_has_its_receipt_sent(self):
        with captureTasks(run=True) as tasks:
            answer = self.client.post("/orders/", {"email": "ada@example.com"})
        self.assertEqual(answer.status_code, 201)
        self.assertEqual([(task.name, task.result) for task in tasks], [("send_receipt", "ada@example.com")])
        self.assertTrue(Order.objects.get().receipt_sent)

    def test_an_order_that_is_not_placed_has_no_task(self):
        with captureTasks() as tasks, self.assertRaises(KeyError):
            self.client.post("/orders/", {"e-mail": "ada@example.com"})
        self.assertEqual((tasks, Order.objects.count()), ([], 0))


class WorkerTest(TransactionTestCase):
    def test_a_worker_sends_the_receipt(self):
        self.client.post("/orders/", {"email": "ada@example.com"})
        self.assertEqual(drain_sync().counts, {"completed": 1})
        self.assertTrue(Order.objects.get().receipt_sent)
