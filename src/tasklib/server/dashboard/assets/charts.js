// Charts beyond HTML: what a column holds, where it leads, and times in the reader's own zone. Without it the times are
// UTC, and say so; the table of a chart leads to the same searches.
(function () {
  "use strict";

  var zone = "UTC";
  try { zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC"; } catch (e) { /* then it stays UTC */ }
  function offset(moment) {
    var minutes = -moment.getTimezoneOffset();
    if (!minutes) return "UTC";
    var size = Math.abs(minutes), rest = size % 60;
    return "UTC" + (minutes > 0 ? "+" : "−") + Math.floor(size / 60) + (rest ? ":" + (rest < 10 ? "0" : "") + rest : "");
  }
  function two(number) { return (number < 10 ? "0" : "") + number; }
  var MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  function said(moment, form) {
    var day = moment.getDate() + " " + MONTHS[moment.getMonth()];
    var time = two(moment.getHours()) + ":" + two(moment.getMinutes());
    return form === "day" ? day : form === "full" ? day + " " + time : time;
  }
  function localise() {
    document.querySelectorAll("time[data-clock]").forEach(function (element) {
      var moment = new Date(element.dateTime);
      var text = said(moment, element.dataset.clock);
      if (element.textContent !== text) element.textContent = text;
      element.title = moment.toLocaleString() + " " + offset(moment);
    });
    document.querySelectorAll("[data-zone]").forEach(function (element) {
      var now = offset(new Date());
      element.textContent = now === "UTC" ? "UTC" : zone + " (" + now + ")";
    });
  }
  localise();
  document.addEventListener("htmx:afterSwap", localise);

  function hide(but) {
    document.querySelectorAll(".chart .tip").forEach(function (tip) {
      if (!but || !tip.parentElement.contains(but)) tip.hidden = true;
    });
  }
  document.addEventListener("pointerover", function (event) {
    var column = event.target.closest && event.target.closest("g.col");
    hide(column);
    if (!column) return;
    var plot = column.closest(".plot");
    var tip = plot.querySelector(".tip");
    if (!tip) return;
    var from = new Date(column.dataset.at), to = new Date(column.dataset.to);
    var form = to - from >= 3600000 ? "full" : "time";
    tip.textContent = said(from, form) + " – " + said(to, form === "full" ? "full" : "time") + " " + offset(from) + "\n" + column.dataset.tip;
    tip.hidden = false;
    var box = plot.getBoundingClientRect();
    var at = column.getBoundingClientRect();
    var left = at.left + at.width / 2 - box.left + 10;
    if (left + tip.offsetWidth > box.width) left -= tip.offsetWidth + 20;
    tip.style.left = Math.max(0, left) + "px";
  });
  document.addEventListener("click", function (event) {
    var target = event.target.closest && event.target.closest("svg [data-href]");
    if (!target) return;
    if (event.ctrlKey || event.metaKey) window.open(target.dataset.href, "_blank", "noopener");
    else location.href = target.dataset.href;
  });
})();
