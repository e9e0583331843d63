// Lists of tasks: walk with j and k, select with x, open with enter; a refresh leaves the selection as it is.
(function () {
  "use strict";
  var here = null;

  function rows() { return Array.from(document.querySelectorAll("tr[data-row]")); }
  function boxes(name) { return Array.from(document.querySelectorAll('input[type="checkbox"][name="' + name + '"]')); }

  function stand(row) {
    rows().forEach(function (r) { r.classList.toggle("here", r === row); });
    here = row ? row.id : null;
    if (row) row.scrollIntoView({ block: "nearest" });
  }
  function current() { return rows().find(function (r) { return r.classList.contains("here"); }); }

  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) && event.target.type !== "checkbox") return;
    var all = rows(), at = all.indexOf(current());
    if (event.key === "j" || event.key === "k") {
      var next = event.key === "j" ? Math.min(at + 1, all.length - 1) : Math.max(at - 1, 0);
      if (all[next]) stand(all[next]);
    } else if (event.key === "x" && at >= 0) {
      var box = all[at].querySelector('input[type="checkbox"]');
      if (box) { box.checked = !box.checked; show(); }
    } else if (event.key === "Enter" && at >= 0 && !event.target.closest("a, button")) {
      var link = all[at].querySelector("td.first a");
      if (link) location.href = link.href;
    }
  });

  // How many are selected, and which buttons that allows.
  function show() {
    document.querySelectorAll("[data-bulk]").forEach(function (bar) {
      var sign = bar.querySelector("[data-chosen]");
      var all = boxes(sign.dataset.chosen);
      var chosen = all.filter(function (box) { return box.checked; }).length;
      sign.textContent = chosen ? chosen + " selected" : "Select tasks to act on them";
      bar.classList.toggle("on", chosen > 0);
      bar.querySelectorAll("[data-needs-choice]").forEach(function (button) { button.disabled = chosen === 0; });
      var whole = document.querySelector('[data-all="' + sign.dataset.chosen + '"]');
      if (whole) { whole.checked = chosen > 0 && chosen === all.length; whole.indeterminate = chosen > 0 && chosen < all.length; }
      all.forEach(function (box) { box.closest("tr").classList.toggle("chosen", box.checked); });
    });
  }
  document.addEventListener("change", function (event) { if (event.target.type === "checkbox") setTimeout(show, 0); });

  var kept = [];
  document.addEventListener("htmx:beforeSwap", function () {
    kept = boxes("id").filter(function (box) { return box.checked; }).map(function (box) { return box.value; });
  });
  document.addEventListener("htmx:afterSwap", function () {
    boxes("id").forEach(function (box) { box.checked = kept.indexOf(box.value) >= 0; });
    var row = here && document.getElementById(here);
    if (row) row.classList.add("here");
    show();
  });
  document.documentElement.classList.add("script");
  show();
})();
