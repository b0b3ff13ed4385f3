/** Keys: a letter for each view, and those that hold everywhere. Nothing is taken while a field is written in. */

import { h, replace } from "./dom.js";

const WRITTEN = "input, textarea, select, [contenteditable]";

/** Listens for keys, and has the button and `?` show what they do. */
export function bindKeys({ views, go, askToken, place, button, dialog, theme }) {
  const help = () => {
    const rows = [
      ...views.map(({ key, name }) => [key, name]),
      ["/", "to the first field of the view"],
      ["Esc", "out of a field"],
      ["↑ ↓ PgUp PgDn Home End", "in a table: another row"],
      ["Enter", "in a table: what there is about the row"],
      ["← →", "on the slider: the epoch before, and after"],
      ["d", "light, dark, or as the system"],
      ["?", "these keys"],
    ];
    replace(
      dialog,
      h("h2", { id: "keys-title" }, "Keys"),
      h("dl", { class: "keys" }, ...rows.map(([key, what]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)))),
      h(
        "p",
        { class: "buttons" },
        h("button", { type: "button", class: "primary", onclick: () => dialog.close() }, "Close"),
        h(
          "button",
          {
            type: "button",
            onclick: () => {
              dialog.close();
              askToken();
            },
          },
          "Token…",
        ),
      ),
    );
    dialog.showModal();
  };
  button.addEventListener("click", help);
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || document.querySelector("dialog[open]")) return;
    if (event.target.closest?.(WRITTEN)) {
      if (event.key === "Escape") {
        event.target.blur();
        place.focus();
      }
      return;
    }
    const view = views.find((each) => each.key === event.key);
    if (view) go(view.name);
    else if (event.key === "/") place.querySelector(WRITTEN)?.focus();
    else if (event.key === "?") help();
    else if (event.key === "d") theme.click();
    else return;
    event.preventDefault();
  });
}
