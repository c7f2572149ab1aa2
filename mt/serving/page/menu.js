// The menu of alternatives for a word (the menu pattern of the ARIA Authoring Practices Guide).

const GAP = 6; // px between the word and its menu

let open = null; // {element, anchor, close}

/**
 * Open a menu below `anchor`. `load(signal)` resolves to the items, [{strong, rest, checked,
 * choose}]; a failure is said in the menu. Closing gives the focus back to the anchor.
 */
export async function openMenu(anchor, label, lang, load) {
  closeMenu();
  const controller = new AbortController();
  const element = document.createElement("div");
  element.className = "menu";
  element.tabIndex = -1;
  element.setAttribute("role", "menu");
  element.setAttribute("aria-label", label);
  say(element, "Looking for others …");
  element.addEventListener("keydown", onKey);
  document.body.append(element);
  anchor.setAttribute("aria-expanded", "true");
  open = { element, anchor, controller };
  place();
  element.focus({ preventScroll: true });
  try {
    const items = await load(controller.signal);
    if (open?.element !== element) return;
    element.replaceChildren(...items.map((item) => makeItem(item, lang)));
    if (items.length < 2) say(element, "No others found.", false);
    place();
    if (element.contains(document.activeElement)) {
      (element.querySelector('[aria-checked="true"]') ?? element.firstChild).focus();
    }
  } catch (error) {
    if (open?.element === element) say(element, error.message);
  }
}

export function closeMenu({ focus = false } = {}) {
  if (!open) return;
  const { element, anchor, controller } = open;
  open = null;
  controller.abort();
  element.remove();
  anchor.removeAttribute("aria-expanded");
  if (focus) anchor.focus({ preventScroll: true });
}

export function isMenuOf(anchor) {
  return open?.anchor === anchor;
}

function makeItem({ strong, rest, checked, choose }, lang) {
  const item = document.createElement("div");
  item.className = "item";
  item.lang = lang;
  item.tabIndex = -1;
  item.setAttribute("role", "menuitemradio");
  item.setAttribute("aria-checked", checked);
  const word = document.createElement("strong");
  word.textContent = strong;
  item.append(word, rest);
  item.addEventListener("click", () => {
    closeMenu({ focus: true });
    choose();
  });
  return item;
}

function say(element, text, replace = true) {
  const note = document.createElement("p");
  note.className = "note";
  note.setAttribute("role", "status");
  note.textContent = text;
  if (replace) element.replaceChildren(note);
  else element.append(note);
}

function onKey(event) {
  const items = [...this.querySelectorAll(".item")];
  const here = items.indexOf(document.activeElement);
  const moves = {
    ArrowDown: (here + 1) % items.length,
    ArrowUp: (here < 1 ? items.length : here) - 1,
    Home: 0,
    End: items.length - 1,
  };
  if (event.key in moves) items[moves[event.key]]?.focus();
  else if (event.key === "Enter" || event.key === " ") items[here]?.click();
  else if (event.key === "Escape") closeMenu({ focus: true });
  else if (event.key === "Tab") closeMenu({ focus: true }); // Tab then goes on from the word
  else return;
  if (event.key !== "Tab") event.preventDefault();
  event.stopPropagation();
}

/** Below the word, or above it where there is more room; inside the window. */
function place() {
  if (!open) return;
  const { element, anchor } = open;
  const word = anchor.getBoundingClientRect();
  const { clientWidth, clientHeight } = document.documentElement;
  const below = clientHeight - word.bottom - 2 * GAP;
  const above = word.top - 2 * GAP;
  const up = below < Math.min(element.scrollHeight, 240) && above > below;
  element.style.maxHeight = `${Math.max(up ? above : below, 120)}px`;
  const top = up ? word.top - GAP - element.offsetHeight : word.bottom + GAP;
  const left = Math.min(word.left - GAP, clientWidth - element.offsetWidth - 2 * GAP);
  element.style.top = `${top + scrollY}px`;
  element.style.left = `${Math.max(left, 2 * GAP) + scrollX}px`;
}

addEventListener("resize", place);
document.addEventListener(
  "scroll",
  (event) => {
    if (event.target !== open?.element) place(); // the panes scroll beneath the menu
  },
  true,
);
document.addEventListener("pointerdown", (event) => {
  const inside = open?.element.contains(event.target) || open?.anchor.contains(event.target);
  if (!inside) closeMenu();
});
