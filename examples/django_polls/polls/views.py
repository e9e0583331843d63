"""The latest questions, one of them, its results, and voting."""

from django.db import transaction
from django.db.models import F
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, render
from django.urls import reverse

from polls.models import Choice, Question
from polls.tasks import tell_author


def index(request: HttpRequest) -> HttpResponse:
    return render(request, "polls/index.html", {"questions": Question.objects.order_by("-pub_date")[:5]})


def detail(request: HttpRequest, question_id: int) -> HttpResponse:
    return render(request, "polls/detail.html", {"question": get_object_or_404(Question, pk=question_id)})


def results(request: HttpRequest, question_id: int) -> HttpResponse:
    return render(request, "polls/results.html", {"question": get_object_or_404(Question, pk=question_id)})


def vote(request: HttpRequest, question_id: int) -> HttpResponse:
    """Count a vote. It and the task are committed together, or neither is."""
    question = get_object_or_404(Question, pk=question_id)
    with transaction.atomic():
        chosen = Choice.objects.filter(question=question, pk=request.POST.get("choice"))
        if not chosen.update(votes=F("votes") + 1):
            message = "You didn't select a choice."
            return render(request, "polls/detail.html", {"question": question, "error_message": message})
        tell_author.submit_sync(question=question.pk)
    return HttpResponseRedirect(reverse("polls:results", args=(question.pk,)))
