// [{text, ratio}] of every visible text: its contrast with its ground, as WCAG 2 defines it.
(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

  function rgba(color) {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  }

  function over([r, g, b, a], ground) {
    return [r, g, b].map((value, i) => value * a + ground[i] * (1 - a));
  }

  function groundOf(element) {
    if (!element) return [255, 255, 255];
    // The textarea stands on its mirror, not on its parent: take the strongest mark there.
    const marked = element.id === "source" && document.querySelector("#mirror .linked");
    const box = element.matches("g.node") && element.querySelector("rect");
    const style = getComputedStyle(marked || box || element);
    return over(rgba(box ? style.fill : style.backgroundColor), groundOf(element.parentElement));
  }

  function luminance(color) {
    const [r, g, b] = color.map((value) => {
      const x = value / 255;
      return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }

  function contrast(element, pseudo) {
    const ground = groundOf(element);
    const style = getComputedStyle(element, pseudo);
    const color = over(rgba(element.matches("text") ? style.fill : style.color), ground);
    const [dark, light] = [luminance(ground), luminance(color)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
  }

  function hasText(element) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    return own || element.matches("textarea, input:not([type=range], [type=radio])");
  }

  const seen = [...document.querySelectorAll("body *")].filter(
    (element) =>
      hasText(element) &&
      element.checkVisibility({ visibilityProperty: true }) &&
      !element.closest("#mirror, .unseen, .skip, script, [inert]") &&
      !element.disabled,
  );
  const texts = seen.map((e) => ({ text: e.textContent || e.id, ratio: contrast(e) }));
  const source = document.getElementById("source");
  if (!source || source.value) return texts;
  return [...texts, { text: source.placeholder, ratio: contrast(source, "::placeholder") }];
})();
