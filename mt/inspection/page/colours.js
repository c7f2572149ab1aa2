// Colours of heat maps. Lightness alone orders them, so that eyes of every kind can read them;
// blue and orange, below and above zero, differ for the colour-blind too.

const RAMPS = {
  light: {
    above: ["#ffffff", "#cfdff0", "#7fabd6", "#2f6fae", "#123f6e", "#08213f"],
    below: ["#ffffff", "#fadfc2", "#eba85e", "#bf6a14", "#7a3d05", "#3f1d00"],
  },
  dark: {
    above: ["#1f2226", "#1f3f60", "#2f6fa8", "#5fa3e0", "#a8d0f7", "#f0f7ff"],
    below: ["#1f2226", "#54361a", "#96591a", "#d98a35", "#f6bd80", "#fff2e0"],
  },
};

const redraws = new Map(); // element -> function that draws it again when the colours change

addEventListener("themechange", () => {
  for (const [element, redraw] of redraws) {
    if (element.isConnected) redraw();
    else redraws.delete(element); // another picture has taken its place
  }
});

function themeRamps() {
  return RAMPS[document.documentElement.dataset.theme === "dark" ? "dark" : "light"];
}

/** A colour of the style sheet. */
function themeColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** A scale: `low` to `high`, or for numbers of both signs from -high to high. */
function sequentialScale(high, low = 0) {
  return { low, high: high > low ? high : low + 1, diverging: false };
}

function divergingScale(high) {
  return { low: -(high || 1), high: high || 1, diverging: true };
}

/** The scale of numbers that may have both signs. */
function signedScale(values) {
  const least = smallest(values);
  return least < 0 ? divergingScale(largestSize(values)) : sequentialScale(largest(values), least);
}

/** A function from numbers to [red, green, blue]. */
function colouring(scale) {
  const { above, below } = themeRamps();
  const up = tableOf(above);
  const down = tableOf(below);
  const place = (share) => Math.min(Math.max(Math.round(share * 255), 0), 255);
  if (scale.diverging) return (x) => (x < 0 ? down : up)[place(Math.abs(x) / scale.high)];
  return (x) => up[place((x - scale.low) / (scale.high - scale.low))];
}

/** A ramp as 256 colours. */
function tableOf(ramp) {
  const stops = ramp.map((colour) =>
    [1, 3, 5].map((start) => Number.parseInt(colour.slice(start, start + 2), 16)),
  );
  return Array.from({ length: 256 }, (_, i) => {
    const place = (i / 255) * (stops.length - 1);
    const first = Math.min(Math.floor(place), stops.length - 2);
    return stops[first].map((x, k) => x + (stops[first + 1][k] - x) * (place - first));
  });
}

/** A matrix as a canvas with one pixel for each number. */
function pixels(matrix, scale, isBlank) {
  const canvas = make("canvas", { width: matrix.columns, height: matrix.rows });
  const context = canvas.getContext("2d");
  const image = context.createImageData(matrix.columns, matrix.rows);
  const colour = colouring(scale);
  for (let i = 0; i < matrix.values.length; i++) {
    if (isBlank?.(Math.floor(i / matrix.columns), i % matrix.columns)) continue; // transparent
    const [red, green, blue] = colour(matrix.values[i]);
    image.data.set([red, green, blue, 255], 4 * i);
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/** The bar that says which colour is which number. */
function legend(scale, unit) {
  const strip = make("span", { class: "ramp", "aria-hidden": "true" });
  const draw = () => {
    const { above, below } = themeRamps();
    const stops = scale.diverging ? [...below.slice(1).reverse(), ...above] : above;
    styled(strip, { "background-image": `linear-gradient(90deg, ${stops.join(", ")})` });
  };
  draw();
  redraws.set(strip, draw);
  return make(
    "p",
    { class: "legend" },
    make("span", {}, brief(scale.low)),
    strip,
    make("span", {}, `${brief(scale.high)} ${unit}`),
  );
}
