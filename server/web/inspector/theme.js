/** Light, dark, or as the system has it: kept by the browser from one visit to the next. */

const THEME = "dataspace-theme";
const NEXT = { system: "light", light: "dark", dark: "system" };

/** Has a button change the theme. */
export function bindTheme(button) {
  const show = (theme) => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.lastElementChild.textContent = theme;
    button.setAttribute("aria-label", `Theme: ${theme}`);
  };
  let theme = localStorage.getItem(THEME);
  theme = theme in NEXT ? theme : "system";
  show(theme);
  button.addEventListener("click", () => {
    theme = NEXT[theme];
    localStorage.setItem(THEME, theme);
    show(theme);
  });
}
