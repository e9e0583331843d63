// What the dashboard does beyond HTML: theme, shortcuts, live refresh, relative times, confirmation.
// Every page reads well without it.
(function () {
  "use strict";
  document.documentElement.classList.add("script");

  // ---- theme: system, light, dark ----
  function theme() { return document.documentElement.dataset.theme || "system"; }
  function nextTheme() {
    var dark = matchMedia("(prefers-color-scheme: dark)").matches;
    var now = theme() === "system" ? (dark ? "dark" : "light") : theme();
    var wanted = now === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = wanted;
    try { localStorage.setItem("tasklib-theme", wanted); } catch (e) { /* then it lasts as long as the page */ }
  }

  // ---- shortcuts ----
  var waitsForSecond = 0;
  function typing(element) {
    if (!element || element.type === "checkbox") return false;
    return element.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName);
  }
  function go(key) {
    var link = document.querySelector('a[data-go="' + key + '"]');
    if (link) location.href = link.href;
  }
  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    if (Date.now() < waitsForSecond && /^[a-z]$/.test(event.key)) {
      waitsForSecond = 0;
      go(event.key);
    } else if (event.key === "g") {
      waitsForSecond = Date.now() + 1200;
    } else if (event.key === "/") {
      event.preventDefault();
      var box = document.querySelector("[data-search]");
      if (box) { box.focus(); box.select(); } else { go("t"); }
    } else if (event.key === "?") {
      open("help");
    } else if (event.key === "p" && document.querySelector("[data-do=live]")) {
      pause();
    } else if (event.key === "r") {
      refresh();
    } else if (event.key === "d") {
      nextTheme();
    }
  });
  function open(id) {
    var dialog = document.getElementById(id);
    if (dialog && !dialog.open) dialog.showModal();
  }

  // ---- clicks: theme, dialogs, copying, selecting all ----
  document.addEventListener("click", function (event) {
    var target = event.target.closest("[data-do]");
    if (!target) return;
    var what = target.dataset.do;
    if (what === "theme") nextTheme();
    else if (what === "live") pause();
    else if (what === "open") open(target.dataset.dialog);
    else if (what === "close") target.closest("dialog").close();
    else if (what === "copy") {
      var source = target.dataset.text || document.getElementById(target.dataset.from).textContent.trim();
      navigator.clipboard.writeText(source).then(function () { target.textContent = "Copied"; });
    }
  });
  document.addEventListener("change", function (event) {
    var all = event.target.closest("[data-all]");
    if (all) {
      document.querySelectorAll('input[type="checkbox"][name="' + all.dataset.all + '"]').forEach(function (box) {
        box.checked = all.checked;
      });
    }
    if (event.target.closest("[data-submit-on-change]")) event.target.form.requestSubmit();
  });

  // ---- confirmation: a form with a field `ask` asks first, in a dialog of the page; without script the server asks ----
  function field(form, name) { var found = form.elements.namedItem(name); return found && found.value; }
  document.addEventListener("submit", function (event) {
    var form = event.target, button = event.submitter;
    var suffix = field(form, "ask") ? "" : "_" + (button && button.name === "action" ? button.value : "");
    var question = field(form, "ask" + suffix);
    if (!question || field(form, "confirmed") === "yes") return;
    event.preventDefault();
    event.stopImmediatePropagation();
    var dialog = document.getElementById("confirm");
    dialog.querySelector("[data-question]").textContent = question;
    var yes = dialog.querySelector("[data-yes]");
    yes.textContent = field(form, "yes" + suffix) || "Yes";
    yes.className = field(form, "danger" + suffix) ? "danger solid" : "primary";
    yes.onclick = function () {
      dialog.close();
      var answer = document.createElement("input");
      answer.type = "hidden"; answer.name = "confirmed"; answer.value = "yes";
      form.append(answer);
      form.requestSubmit(button);
      answer.remove();
    };
    dialog.showModal();
  }, true);

  // ---- live: a tick of the server lets marked parts of the page fetch themselves, unless somebody is at work there ----
  // A click whose button is replaced between press and release goes nowhere.
  var isPressed = false;
  document.addEventListener("pointerdown", function () { isPressed = true; }, true);
  ["pointerup", "pointercancel", "blur"].forEach(function (end) {
    window.addEventListener(end, function () { isPressed = false; }, true);
  });
  function atWork(part) {
    if (isPressed || document.hidden || document.querySelector("dialog[open]")) return true;
    if (part.contains(document.activeElement) && typing(document.activeElement)) return true;
    if (part.querySelector('input[type="checkbox"]:checked:not([data-calm])')) return true;
    var selection = document.getSelection();
    return Boolean(selection && !selection.isCollapsed && part.contains(selection.anchorNode));
  }
  document.addEventListener("htmx:beforeRequest", function (event) {
    var part = event.detail.elt;
    if (part.hasAttribute("data-live") && atWork(part)) event.preventDefault();
  });
  // Somebody may have begun while the answer was on its way: a question about a form that is gone could not be answered.
  document.addEventListener("htmx:beforeSwap", function (event) {
    var part = event.detail.target;
    if (!part.hasAttribute("data-live") || !atWork(part)) return;
    event.detail.shouldSwap = false;
    event.stopImmediatePropagation();
  });
  function refresh() {
    document.querySelectorAll("[data-live]").forEach(function (part) { htmx.trigger(part, "tick"); });
  }
  // All pages hear of a tick at once, and may get one answer. Who names the answer that is shown is told if it is the same.
  var isTick = false;
  document.addEventListener("htmx:configRequest", function (event) {
    var part = event.detail.elt;
    if (!part.hasAttribute("data-live")) return;
    if (isTick) event.detail.headers["TaskLib-Tick"] = "1";
    if (part.dataset.seen) event.detail.headers["If-None-Match"] = part.dataset.seen;
  });
  document.addEventListener("htmx:beforeSwap", function (event) {
    if (event.detail.xhr.status !== 304) return;
    event.detail.shouldSwap = false;
    event.stopImmediatePropagation();
  });
  // The sign is a button: it pauses the refresh of this browser, and goes on with it.
  var isOn = null, isPaused = false;
  try { isPaused = localStorage.getItem("tasklib-paused") === "yes"; } catch (e) { /* then it is not remembered */ }
  function mark(on) {
    isOn = on;
    document.querySelectorAll(".live").forEach(function (sign) {
      sign.dataset.on = String(on && !isPaused);
      sign.textContent = isPaused ? "Paused" : on ? "Live" : on === false ? "Reconnecting" : "Not live";
      sign.setAttribute("aria-pressed", String(isPaused));
      sign.title = isPaused ? "Refresh this page again (p)" : "Pause the refresh of this page (p)";
    });
  }
  function pause() {
    isPaused = !isPaused;
    try { localStorage.setItem("tasklib-paused", isPaused ? "yes" : "no"); } catch (e) { /* then it lasts as long as the page */ }
    mark(isOn);
    if (!isPaused) refresh();
  }
  // At most once in so many seconds, if the reader wants it slower than it happens.
  var rate = 0, refreshed = 0;
  try { rate = Number(localStorage.getItem("tasklib-rate")) || 0; } catch (e) { /* then as it happens */ }
  function showRate() {
    document.querySelectorAll("[data-rate]").forEach(function (choice) { choice.value = String(rate); });
  }
  document.addEventListener("change", function (event) {
    if (!event.target.matches("[data-rate]")) return;
    rate = Number(event.target.value);
    try { localStorage.setItem("tasklib-rate", String(rate)); } catch (e) { /* then it lasts as long as the page */ }
    showRate();
  });
  function tick(event) {
    if (event && event.data) tellTrouble(JSON.parse(event.data));
    if (isPaused || Date.now() - refreshed < rate * 1000) return;
    refreshed = Date.now();
    isTick = Boolean(event);
    refresh();
    isTick = false;
  }
  // Title and icon of the tab say how the fleet is, also of a page that is paused.
  function tellTrouble(told) {
    var icon = document.getElementById("icon");
    var bad = told.trouble === "warning" || told.trouble === "critical";
    var wanted = icon.dataset[bad ? told.trouble : "ok"];
    if (icon.getAttribute("href") !== wanted) icon.setAttribute("href", wanted);
    var title = (bad ? "(" + told.count + ") " : "") + document.title.replace(/^\(\d+\) /, "");
    if (document.title !== title) document.title = title;
  }
  // One connection while the page is seen: a browser allows a server six, and hidden tabs would use them up.
  var stream = null, again = 0;
  function listen() {
    clearTimeout(again);
    if (stream || document.hidden || !document.body.dataset.liveUrl) return;
    stream = new EventSource(document.body.dataset.liveUrl);
    stream.addEventListener("open", function () { mark(true); });
    stream.addEventListener("tick", tick);
    stream.addEventListener("error", function () {
      mark(false);
      if (stream && stream.readyState === EventSource.CLOSED) { hush(); again = setTimeout(relisten, 5000); }
    });
  }
  // Somebody whom the server no longer lets listen is led to the login by the refresh.
  function relisten() { tick(); listen(); }
  function hush() { if (stream) stream.close(); stream = null; }
  document.addEventListener("visibilitychange", function () { if (document.hidden) hush(); else relisten(); });
  window.addEventListener("pagehide", hush);
  listen();
  mark(isOn);
  showRate();
  // The header of a page refreshes with it, unless nothing in it has changed: a button under the hand stays.
  function said(element) {
    var copy = element.cloneNode(true);
    copy.querySelectorAll(".liveness").forEach(function (sign) { sign.remove(); });
    return copy.innerHTML.replace(/\s+/g, " ");
  }
  document.addEventListener("htmx:oobBeforeSwap", function (event) {
    var fresh = event.detail.fragment.querySelector("#" + event.detail.target.id) || event.detail.fragment.firstElementChild;
    if (fresh && said(fresh) === said(event.detail.target)) event.detail.shouldSwap = false;
  });
  document.addEventListener("htmx:oobAfterSwap", function () { mark(isOn); showRate(); });
  document.addEventListener("htmx:responseError", function (event) {
    // The session has ended: the page itself says so, and the login leads back here.
    if (event.detail.xhr.status === 401) location.reload();
  });
  // A part that says the same as before stays as it is: what is folded, focused or scrolled in it, too. The words of
  // relative times are not compared; they count by themselves.
  function content(part, page) {
    var texts = [part, page.getElementById("actions")].map(function (element) {
      if (!element) return "";
      var copy = element.cloneNode(true);
      copy.querySelectorAll("time[data-ago]").forEach(function (time) { time.textContent = ""; });
      copy.querySelectorAll("time[data-exact]").forEach(function (time) { time.removeAttribute("title"); });
      copy.querySelectorAll(".liveness").forEach(function (sign) { sign.remove(); });
      return copy.innerHTML;
    });
    return texts.join("\n");
  }
  var contents = {};
  document.querySelectorAll("[data-live][id]").forEach(function (part) { contents[part.id] = content(part, document); });
  document.addEventListener("htmx:beforeSwap", function (event) {
    var part = event.detail.target;
    if (!part.id || !part.hasAttribute("data-live") || part.hasAttribute("data-holds") || event.detail.xhr.status !== 200) return;
    var page = new DOMParser().parseFromString(event.detail.xhr.responseText, "text/html");
    var fresh = page.getElementById(part.id);
    if (!fresh) return;
    var now = content(fresh, page);
    if (contents[part.id] === now) { event.detail.shouldSwap = false; saw(event); }
    contents[part.id] = now;
  });
  function saw(event) { event.detail.target.dataset.seen = event.detail.xhr.getResponseHeader("ETag") || ""; }
  document.addEventListener("htmx:afterSwap", function (event) { if (event.detail.target.hasAttribute("data-live")) saw(event); });
  var opened = [], scrolled = [];
  document.addEventListener("htmx:beforeSwap", function () {
    opened = Array.from(document.querySelectorAll("details[open][id]")).map(function (d) { return d.id; });
    scrolled = Array.from(document.querySelectorAll("[data-scrolls][id]")).map(function (e) { return [e.id, e.scrollLeft, e.scrollTop]; });
  });
  document.addEventListener("htmx:afterSwap", function () {
    opened.forEach(function (id) { var d = document.getElementById(id); if (d) d.open = true; });
    scrolled.forEach(function (was) { var e = document.getElementById(was[0]); if (e) e.scrollTo(was[1], was[2]); });
    times();
  });

  // ---- relative times: "12 s ago" goes on counting, as text with the exact time in the title, or the other way round ----
  var UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  function words(seconds) {
    var size = Math.abs(seconds);
    if (size < 1) return "now";
    for (var i = 0; i < UNITS.length; i++) {
      if (size >= UNITS[i][0]) {
        var text = Math.floor(size / UNITS[i][0]) + " " + UNITS[i][1];
        return seconds >= 0 ? text + " ago" : "in " + text;
      }
    }
    return "now";
  }
  // The server's clock counts, not the reader's: the page says what time it was when it was made.
  var root = document.documentElement;
  var ahead = root.dataset.now ? Date.now() - Date.parse(root.dataset.now) : 0;
  function times() {
    var now = Date.now() - ahead;
    document.querySelectorAll("time[data-ago]").forEach(function (element) {
      element.textContent = words((now - Date.parse(element.dateTime)) / 1000);
    });
    document.querySelectorAll("time[data-exact]").forEach(function (element) {
      element.title = words((now - Date.parse(element.dateTime)) / 1000);
    });
  }
  setInterval(times, 1000);
  document.addEventListener("times", times);

  // ---- on a phone the navigation scrolls: to where we are ----
  var current = document.querySelector(".nav [aria-current]");
  if (current) current.parentElement.scrollLeft = current.offsetLeft - current.parentElement.offsetLeft - 40;
})();
