"""Votes, and what follows from them."""

from django.core import mail
from django.test import TestCase
from django.urls import reverse
from django.utils import timezone
from tasklib.django.test import captureTasks

from polls.models import Choice, Question


class VoteTest(TestCase):
    def setUp(self) -> None:
        self.question = Question.objects.create(question_text="What's new?", pub_date=timezone.now())
        self.choice = self.question.choice_set.create(choice_text="Not much")

    def vote(self, **data: int):
        return self.client.post(reverse("polls:vote", args=(self.question.pk,)), data)

    def test_a_vote_is_counted_and_its_author_told(self) -> None:
        with captureTasks(run=True) as tasks:
            self.assertRedirects(self.vote(choice=self.choice.pk), reverse("polls:results", args=(self.question.pk,)))
        self.assertEqual([(task.name, task.result) for task in tasks], [("tell_author", 1)])
        self.assertEqual(Choice.objects.get().votes, 1)
        self.assertEqual(mail.outbox[0].subject, "Votes on: What's new?")

    def test_without_a_choice_there_is_no_vote_and_no_task(self) -> None:
        with captureTasks() as tasks:
            self.assertContains(self.vote(), "You didn&#x27;t select a choice.")
        self.assertEqual(tasks, [])
