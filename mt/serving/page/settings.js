// Dark mode and the size of the text. A script of its own that is no module: it runs before the
// page is first drawn, which else would flash in the wrong colours.
"use strict";

(() => {
  const SIZES = [0.85, 1, 1.15, 1.35, 1.6, 2];
  const root = document.documentElement;
  const darkSystem = matchMedia("(prefers-color-scheme: dark)");

  function load(name) {
    try {
      return localStorage.getItem(name);
    } catch {
      return null; // the browser forbids it: the settings then last as long as the page
    }
  }

  function save(name, value) {
    try {
      localStorage.setItem(name, value);
    } catch {}
  }

  const saved = SIZES.indexOf(Number(load("size")));
  let size = saved < 0 ? 1 : saved;
  let theme = load("theme"); // null: as the system has it

  function isDark() {
    return theme === null ? darkSystem.matches : theme === "dark";
  }

  function apply() {
    root.dataset.theme = isDark() ? "dark" : "light";
    root.style.setProperty("--scale", SIZES[size]);
  }

  function label() {
    document.getElementById("theme").setAttribute("aria-pressed", isDark());
    // Not "disabled", which would take the focus away from under the finger.
    document.getElementById("smaller").setAttribute("aria-disabled", size === 0);
    document.getElementById("larger").setAttribute("aria-disabled", size === SIZES.length - 1);
  }

  function resize(step) {
    size = Math.min(Math.max(size + step, 0), SIZES.length - 1);
    save("size", SIZES[size]);
    apply();
    label();
  }

  function switchTheme() {
    theme = isDark() ? "light" : "dark";
    save("theme", theme);
    apply();
    label();
  }

  apply();
  document.addEventListener("DOMContentLoaded", () => {
    label();
    document.getElementById("smaller").addEventListener("click", () => resize(-1));
    document.getElementById("larger").addEventListener("click", () => resize(1));
    document.getElementById("theme").addEventListener("click", switchTheme);
    darkSystem.addEventListener("change", () => {
      apply();
      label();
    });
  });
})();
