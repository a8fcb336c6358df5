// Dark or light: the system's choice, unless somebody has chosen here. Runs before the first paint.
"use strict";

{
  const KEY = "vllm-pingora.theme";
  const THEMES = ["auto", "light", "dark"];

  const read = () => {
    try {
      const kept = localStorage.getItem(KEY);
      return THEMES.includes(kept) ? kept : "auto";
    } catch {
      return "auto";
    }
  };

  const keep = (theme) => {
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // It holds until the page is left.
    }
  };

  const apply = (theme) => {
    document.documentElement.dataset.theme = theme;
  };

  let theme = read();
  apply(theme);

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const label = () => {
      button.textContent = `Theme: ${theme}`;
    };
    label();
    button.addEventListener("click", () => {
      theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
      keep(theme);
      apply(theme);
      label();
    });
  });
}
