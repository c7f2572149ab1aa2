// Dark or light. It runs before the page is first drawn, which else would flash in wrong colours.
"use strict";

(() => {
  const root = document.documentElement;
  const darkSystem = matchMedia("(prefers-color-scheme: dark)");
  let theme = null; // null: as the system has it
  try {
    theme = localStorage.getItem("theme");
  } catch {} // the browser forbids it: the choice then lasts as long as the page

  const isDark = () => (theme === null ? darkSystem.matches : theme === "dark");

  function apply() {
    root.dataset.theme = isDark() ? "dark" : "light";
    document.getElementById("theme")?.setAttribute("aria-pressed", isDark());
    dispatchEvent(new Event("themechange"));
  }

  function change() {
    theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("theme", theme);
    } catch {}
    apply();
  }

  apply();
  darkSystem.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme").addEventListener("click", change);
  });
})();
