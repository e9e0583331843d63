// JSON on the page of a task as a tree: parts fold, and a click on a name copies its path, as a search has it.
// The text itself stays for readers without script, and for copying.
(function () {
  "use strict";
  var MOST = 3000;
  var folded = new Set();

  function element(tag, className, text) {
    var made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }
  function size(value) {
    var number = Array.isArray(value) ? value.length : Object.keys(value).length;
    return (Array.isArray(value) ? "[" : "{") + number + (Array.isArray(value) ? "]" : "}");
  }
  function plain(value) {
    var kind = value === null ? "null" : typeof value;
    return element("span", "value " + kind, JSON.stringify(value));
  }
  function branch(name, value, path, room) {
    room.left -= 1;
    var row = element("li");
    var inner = value !== null && typeof value === "object";
    var toggle = inner ? element("button", "fold") : element("span", "fold");
    if (inner) {
      toggle.type = "button";
      toggle.setAttribute("aria-expanded", String(!folded.has(path)));
      toggle.setAttribute("aria-label", "Fold " + path);
      toggle.dataset.fold = path;
    }
    var key = element("button", "key", name);
    key.type = "button";
    key.title = "Copy the path " + path;
    key.dataset.path = path;
    row.append(toggle, key, element("span", "colon", ": "), inner ? element("span", "value size", size(value)) : plain(value));
    if (inner) row.append(tree(value, path, room));
    return row;
  }
  function tree(value, path, room) {
    var list = element("ul", "tree");
    list.hidden = folded.has(path);
    var names = Array.isArray(value) ? value.map(function (_, n) { return String(n); }) : Object.keys(value);
    names.forEach(function (name) {
      if (room.left > 0) list.append(branch(name, value[name], path + "." + name, room));
    });
    return list;
  }
  function draw() {
    document.querySelectorAll("pre[data-json]").forEach(function (text) {
      if (text.nextElementSibling && text.nextElementSibling.matches(".json-tree")) return;
      var value;
      try { value = JSON.parse(text.textContent); } catch (e) { return; }
      if (value === null || typeof value !== "object") return;
      var room = { left: MOST }, whole = element("div", "json-tree");
      whole.append(tree(value, text.dataset.json, room));
      if (room.left <= 0) return; // too much for a tree: the text is quicker
      text.hidden = true;
      text.after(whole);
    });
  }
  document.addEventListener("click", function (event) {
    var fold = event.target.closest("[data-fold]"), key = event.target.closest("[data-path]");
    if (fold) {
      var path = fold.dataset.fold, list = fold.closest("li").querySelector("ul");
      list.hidden = !list.hidden;
      if (list.hidden) folded.add(path); else folded.delete(path);
      fold.setAttribute("aria-expanded", String(!list.hidden));
    } else if (key) {
      navigator.clipboard.writeText(key.dataset.path).then(function () {
        key.classList.add("copied");
        setTimeout(function () { key.classList.remove("copied"); }, 1200);
      });
    }
  });
  document.addEventListener("htmx:afterSwap", draw);
  draw();
})();
