// Ctrl-K: jump to a task by its id, to a screen, queue, name, worker or schedule, or press a button of this page.
(function () {
  "use strict";
  var dialog = document.getElementById("palette");
  if (!dialog || !dialog.showModal) return;
  var box = dialog.querySelector("input"), list = dialog.querySelector("[role=listbox]");
  var items = [], at = 0, asked = 0, came = null;

  function open() {
    if (document.querySelector("dialog[open]")) return;
    came = document.activeElement;
    box.value = "";
    dialog.showModal();
    box.focus();
    look();
  }
  // The buttons of this page: those of its header, by their labels.
  function actions(text) {
    return Array.from(document.querySelectorAll("#actions button, #actions a.button")).filter(function (button) {
      return !button.disabled && !button.closest("[hidden]") && button.textContent.toLowerCase().indexOf(text.toLowerCase()) >= 0;
    }).map(function (button) {
      return { kind: "action", title: button.textContent.trim(), note: "on this page", press: function () { button.click(); } };
    });
  }
  function own(text) {
    return [
      { kind: "action", title: "Light or dark", run: "[data-do=theme]" },
      { kind: "action", title: "Keyboard shortcuts", run: "[data-dialog=help]" },
      { kind: "action", title: "Log out", run: "form[action$='/logout'] button" }
    ].filter(function (item) {
      return document.querySelector(item.run) && item.title.toLowerCase().indexOf(text.toLowerCase()) >= 0;
    }).map(function (item) { item.press = function () { document.querySelector(item.run).click(); }; return item; });
  }
  function look() {
    var text = box.value.trim(), mine = ++asked;
    fetch(dialog.dataset.url + "?format=json&q=" + encodeURIComponent(text), { headers: { Accept: "application/json" } })
      .then(function (response) { return response.ok ? response.json() : []; })
      .then(function (places) {
        if (mine !== asked) return;
        items = actions(text).concat(places, own(text));
        at = 0;
        draw();
      });
  }
  function draw() {
    list.replaceChildren.apply(list, items.map(function (item, number) {
      var row = document.createElement("div");
      row.setAttribute("role", "option");
      row.id = "place-" + number;
      row.setAttribute("aria-selected", String(number === at));
      [["badge", item.kind], ["title", item.title], ["sub", item.note || ""]].forEach(function (part) {
        var span = document.createElement("span");
        span.className = part[0];
        span.textContent = part[1];
        row.append(span);
      });
      row.addEventListener("click", function () { at = number; go(); });
      return row;
    }));
    box.setAttribute("aria-activedescendant", items.length ? "place-" + at : "");
    dialog.querySelector("[data-none]").hidden = items.length > 0;
    var here = document.getElementById("place-" + at);
    if (here) here.scrollIntoView({ block: "nearest" });
  }
  function go() {
    var item = items[at];
    if (!item) return;
    dialog.close();
    if (item.press) { if (came && came.focus) came.focus(); item.press(); } else { location.href = item.href; }
  }
  box.addEventListener("input", look);
  box.addEventListener("keydown", function (event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      at = Math.max(0, Math.min(items.length - 1, at + (event.key === "ArrowDown" ? 1 : -1)));
      draw();
    } else if (event.key === "Enter") {
      event.preventDefault();
      go();
    } else if (event.key === "Escape") {
      event.preventDefault();
      dialog.close();
    }
  });
  document.addEventListener("keydown", function (event) {
    if ((event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      open();
    }
  });
  document.addEventListener("click", function (event) {
    if (!event.target.closest("[data-palette]")) return;
    event.preventDefault();
    open();
  });
})();
