"""Tasks in the admin."""

from django.contrib.auth.models import Permission, User
from django.test import TestCase

import tasklib
from shop import tasks
from tasklib.client.default import default_client
from tasklib.django.models import TaskRecord
from tasklib.django.test import captureTasks

LIST = "/admin/tasklib/taskrecord/"


class Admin(TestCase):
    def log_in(self, *permissions, superuser=False):
        user = User.objects.create_user("ann", password="x", is_staff=True, is_superuser=superuser)
        user.user_permissions.set(
            Permission.objects.filter(codename__in=permissions, content_type__app_label="tasklib")
        )
        self.client.force_login(user)

    def act(self, action, *ids):
        answer = self.client.post(LIST, {"action": action, "_selected_action": [str(i) for i in ids]}, follow=True)
        return [str(message) for message in answer.context["messages"]]

    def names_listed(self, query=""):
        answer = self.client.get(f"{LIST}?{query}")
        self.assertEqual(answer.status_code, 200)
        return sorted(task.name for task in answer.context["cl"].result_list)

    def test_the_list_filters_by_state_and_searches_like_the_dashboard(self):
        self.log_in(superuser=True)
        tasks.send_receipt.submit_sync(order=7)
        tasklib.sync.cancel_task(tasks.fail.submit_sync(message="no ink"))
        self.assertEqual(self.names_listed(), ["fail", "send_receipt"])
        self.assertEqual(self.names_listed("state__exact=cancelled"), ["fail"])
        self.assertEqual(self.names_listed("q=name:send_receipt"), ["send_receipt"])
        self.assertEqual(self.names_listed("q=state:cancelled"), ["fail"])
        self.assertEqual(self.names_listed("q=colour:red"), [])

    def test_a_task_is_shown_with_arguments_and_error_and_without_its_secrets(self):
        self.log_in("view_taskrecord")
        with self.assertRaises(ValueError), captureTasks(run=True):
            task_id = tasks.fail.options(tags={"api_key": "k-123456"}).submit_sync(message="<b>no ink</b>")
        page = self.client.get(f"{LIST}{task_id}/change/").content.decode()
        self.assertIn("ValueError: &lt;b&gt;no ink&lt;/b&gt;", page)
        self.assertIn("api_key", page)
        self.assertNotIn("k-123456", page)
        self.assertNotIn('name="_save"', page)

    def test_a_masked_value_is_not_shown_elsewhere_in_its_task_and_not_found_by_a_search(self):
        self.log_in("view_taskrecord")
        with self.assertRaises(ValueError), captureTasks(run=True):
            fail = tasks.fail.options(tags={"api_key": "k-123456"})
            task_id = fail.submit_sync(message="k-123456 is no password=abc-123")
        page = self.client.get(f"{LIST}{task_id}/change/").content.decode()
        self.assertNotIn("k-123456", page)
        self.assertNotIn("abc-123", page)
        self.assertEqual(self.names_listed("q=tag:api_key%3Dk-123456"), [])
        self.assertEqual(self.names_listed("q=error:abc-1"), [])
        self.assertEqual(self.names_listed("q=error:ValueError"), ["fail"])

    def test_cancel_and_replay_say_what_became_of_the_tasks_and_the_audit_names_the_user(self):
        self.log_in(superuser=True)
        waiting, other = tasks.send_receipt.submit_sync(order=1), tasks.send_receipt.submit_sync(order=2)
        self.assertEqual(self.act("cancel", waiting, other), ["2 tasks were cancelled, or asked to stop."])
        self.assertEqual(self.act("replay", waiting), ["1 task was replayed."])
        (refusal,) = self.act("replay", waiting)
        self.assertIn("1 left as they are", refusal)
        self.assertEqual(TaskRecord.objects.get(pk=waiting).state, "pending")
        self.assertEqual({entry.actor for entry in default_client().audit()}, {"ann"})

    def test_each_action_needs_its_permission_and_nothing_is_added_changed_or_deleted(self):
        task_id = tasks.send_receipt.submit_sync(order=1)
        self.log_in("view_taskrecord", "replay_task")
        page = self.client.get(LIST).content.decode()
        self.assertIn('value="replay"', page)
        self.assertNotIn('value="cancel"', page)
        self.act("cancel", task_id)
        self.assertEqual(TaskRecord.objects.get(pk=task_id).state, "pending")
        for place in ("add/", f"{task_id}/delete/"):
            self.assertEqual(self.client.get(f"{LIST}{place}").status_code, 403)
        self.assertEqual(self.client.post(f"{LIST}{task_id}/change/", {"name": "x"}).status_code, 403)

    def test_without_permission_there_is_no_page(self):
        self.log_in()
        self.assertEqual(self.client.get(LIST).status_code, 403)
