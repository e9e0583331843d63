// Lists of tasks: walk with j and k, select with x, open with enter, load new tasks with n. While a row is selected, focused,
// under the pointer or under the cursor, rows stay where they are; what changes in them is shown in place.
(function () {
  "use strict";
  var here = null, isAsked = false;

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
      if (box) { box.checked = !box.checked; choose(box); }
    } else if (event.key === "n" || event.key === "Escape") {
      if (event.key === "Escape") stand(null);
      load();
    } else if (event.key === "Enter" && at >= 0 && !event.target.closest("a, button")) {
      var link = all[at].querySelector("td.first a");
      if (link) location.href = link.href;
    }
  });

  // ---- selection: by id, kept while one pages through the same search ----
  var place = "tasklib-chosen:" + location.pathname + "?" + (new URLSearchParams(location.search).get("q") || "");
  var chosen = new Set();
  try { chosen = new Set(JSON.parse(sessionStorage.getItem(place) || "[]")); } catch (e) { /* then it is of this page alone */ }
  function keep() { try { sessionStorage.setItem(place, JSON.stringify(Array.from(chosen))); } catch (e) { /* as above */ } }
  function choose(box) {
    if (box.checked) chosen.add(box.value); else chosen.delete(box.value);
    keep();
    show();
  }
  function tick() { boxes("id").forEach(function (box) { box.checked = chosen.has(box.value); }); }
  document.addEventListener("change", function (event) {
    if (event.target.type !== "checkbox") return;
    // At once, so that no refresh comes between. "Select all" has changed the others: dashboard.js hears of it first.
    boxes("id").forEach(function (box) { if (box.checked) chosen.add(box.value); else chosen.delete(box.value); });
    keep();
    show();
  });
  document.addEventListener("click", function (event) {
    if (event.target.closest("[data-choose-none]")) { chosen.clear(); keep(); tick(); show(); }
    if (event.target.closest("[data-load]")) load();
  });
  // What was selected on other pages goes with the form.
  document.addEventListener("submit", function (event) {
    if (event.target.getAttribute("id") !== "bulk" || event.defaultPrevented) return; // `.id` is a field of the form
    var onPage = boxes("id").map(function (box) { return box.value; });
    chosen.forEach(function (id) {
      if (onPage.indexOf(id) >= 0) return;
      var field = document.createElement("input");
      field.type = "hidden"; field.name = "id"; field.value = id;
      event.target.append(field);
    });
    chosen.clear();
    keep();
  });

  // How many are selected, and which buttons that allows.
  function show() {
    document.querySelectorAll("[data-bulk]").forEach(function (bar) {
      var sign = bar.querySelector("[data-chosen]");
      var all = boxes(sign.dataset.chosen);
      var onPage = all.filter(function (box) { return box.checked; }).length;
      var elsewhere = chosen.size - onPage;
      sign.textContent = chosen.size
        ? chosen.size + " selected" + (elsewhere > 0 ? ", " + elsewhere + " on other pages" : "")
        : "Select tasks to act on them";
      bar.classList.toggle("on", chosen.size > 0);
      bar.querySelectorAll("[data-needs-choice]").forEach(function (button) { button.disabled = chosen.size === 0; });
      bar.querySelectorAll("[data-choose-none]").forEach(function (button) { button.hidden = chosen.size === 0; });
      var whole = document.querySelector('[data-all="' + sign.dataset.chosen + '"]');
      if (whole) { whole.checked = onPage > 0 && onPage === all.length; whole.indeterminate = onPage > 0 && onPage < all.length; }
      all.forEach(function (box) { box.closest("tr").classList.toggle("chosen", box.checked); });
    });
  }

  // ---- rows that hold still ----
  function isHeld(list) {
    if (isAsked) return false;
    return Boolean(chosen.size || list.querySelector("tr.here") || list.querySelector("tbody:hover")
      || (list.contains(document.activeElement) && document.activeElement.closest("tbody")));
  }
  function load() {
    var list = document.querySelector("[data-holds]");
    if (!list) return;
    isAsked = true;
    delete list.dataset.seen;
    htmx.trigger(list, "tick");
  }
  // Without the words of relative times, which count by themselves.
  function unworded(cell) {
    var copy = cell.cloneNode(true);
    copy.querySelectorAll("time").forEach(function (time) { time.textContent = ""; time.removeAttribute("title"); });
    return copy.innerHTML;
  }
  // The same rows, with their new states, durations and errors; cells that are in use stay.
  function update(list, fresh) {
    list.querySelectorAll("tr[data-row]").forEach(function (row) {
      var newer = fresh.getElementById(row.id);
      if (!newer || newer.cells.length !== row.cells.length) return;
      Array.from(row.cells).forEach(function (cell, number) {
        var other = newer.cells[number];
        if (cell.classList.contains("pick") || cell.contains(document.activeElement)) return;
        if (unworded(cell) !== unworded(other)) { cell.innerHTML = other.innerHTML; cell.className = other.className; }
      });
    });
    document.dispatchEvent(new Event("times"));
  }
  function count(list, fresh) {
    var known = new Set(rows().map(function (row) { return row.id; }));
    var added = Array.from(fresh.querySelectorAll("tr[data-row]")).filter(function (row) { return !known.has(row.id); }).length;
    var note = list.querySelector("[data-held]");
    if (!note) return;
    note.hidden = added === 0;
    var all = fresh.querySelectorAll("tr[data-row]").length;
    note.querySelector("[data-load]").textContent = added + (added === all ? "+" : "") + (added === 1 ? " new task" : " new tasks");
  }
  document.addEventListener("htmx:beforeSwap", function (event) {
    var list = event.detail.target;
    if (!list.hasAttribute("data-holds") || event.detail.xhr.status !== 200 || !isHeld(list)) return;
    event.detail.shouldSwap = false;
    delete list.dataset.seen;
    var fresh = new DOMParser().parseFromString(event.detail.xhr.responseText, "text/html");
    update(list, fresh);
    count(list, fresh);
  });
  document.addEventListener("htmx:afterSwap", function (event) {
    if (event.detail.target.hasAttribute("data-holds")) isAsked = false;
    tick();
    var row = here && document.getElementById(here);
    if (row) row.classList.add("here");
    show();
  });
  tick();
  show();
})();
