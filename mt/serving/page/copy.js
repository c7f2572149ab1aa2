// The button that copies the translation.

export async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyOldWay(text); // pages without https have no clipboard
  }
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy"), 1500);
  button.focus();
}

function copyOldWay(text) {
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
