// Runs before the first paint, so that a page never flashes in the other theme.
(function () {
  "use strict";
  var chosen = null;
  try { chosen = localStorage.getItem("tasklib-theme"); } catch (e) { /* storage may be switched off */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
