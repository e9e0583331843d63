// Suggestions under the search box: how its last term can go on, with how many tasks have it.
(function () {
  "use strict";
  var box = document.querySelector("[data-suggest]"), list = document.getElementById("suggestions");
  if (!box || !list) return;
  var found = [], at = -1, asked = 0, soon = 0;

  function close() { list.hidden = true; at = -1; box.setAttribute("aria-expanded", "false"); box.removeAttribute("aria-activedescendant"); }
  function look() {
    var mine = ++asked;
    fetch(box.dataset.suggest + "?q=" + encodeURIComponent(box.value))
      .then(function (response) { return response.ok ? response.json() : []; })
      .then(function (answer) {
        if (mine !== asked || document.activeElement !== box) return;
        found = answer.filter(function (one) { return one.text !== box.value; });
        at = -1;
        if (found.length) draw(); else close();
      });
  }
  function counted(one) {
    if (one.count === null) return "";
    var number = one.count.toLocaleString("en") + (one.is_least ? "+" : "");
    return one.of ? number + " of the newest " + one.of.toLocaleString("en") : number;
  }
  function draw() {
    list.replaceChildren.apply(list, found.map(function (one, number) {
      var row = document.createElement("div");
      row.setAttribute("role", "option");
      row.id = "suggestion-" + number;
      row.setAttribute("aria-selected", String(number === at));
      [["term", one.term], ["sub", counted(one)]].forEach(function (part) {
        var span = document.createElement("bdi");
        span.className = part[0];
        span.textContent = part[1];
        row.append(span);
      });
      row.addEventListener("mousedown", function (event) { event.preventDefault(); take(number); });
      return row;
    }));
    list.hidden = false;
    box.setAttribute("aria-expanded", "true");
    if (at >= 0) box.setAttribute("aria-activedescendant", "suggestion-" + at); else box.removeAttribute("aria-activedescendant");
  }
  // A whole term is followed by the next one; `args.` and `tag.customer:` go on.
  function take(number) {
    var text = found[number].text;
    box.value = /[:.=]$/.test(text) ? text : text + " ";
    box.focus();
    look();
  }
  box.addEventListener("input", function () { clearTimeout(soon); soon = setTimeout(look, 120); });
  box.addEventListener("focus", look);
  box.addEventListener("blur", close);
  box.addEventListener("keydown", function (event) {
    if (list.hidden) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      at = (at + (event.key === "ArrowDown" ? 1 : -1) + found.length + (at < 0 && event.key === "ArrowUp" ? 1 : 0)) % found.length;
      draw();
    } else if ((event.key === "Enter" || event.key === "Tab") && at >= 0) {
      event.preventDefault();
      take(at);
    } else if (event.key === "Escape") {
      event.preventDefault();
      close();
    }
  });
})();
