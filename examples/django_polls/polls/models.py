"""Questions, their choices, and how many votes the author of a question has been told of."""

from django.db import models


class Question(models.Model):
    question_text = models.CharField(max_length=200)
    pub_date = models.DateTimeField("date published")
    author_email = models.EmailField(blank=True)
    votes_told = models.IntegerField(default=0, editable=False)

    def __str__(self) -> str:
        return self.question_text

    @property
    def votes(self) -> int:
        return sum(choice.votes for choice in self.choice_set.all())


class Choice(models.Model):
    question = models.ForeignKey(Question, on_delete=models.CASCADE)
    choice_text = models.CharField(max_length=200)
    votes = models.IntegerField(default=0)

    def __str__(self) -> str:
        return self.choice_text
