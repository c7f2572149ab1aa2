// A heat map to look at closely: a canvas with labels, whose cells a mouse, a finger or the arrow
// keys choose; below it the number of the cell, the legend, and the same as a table.

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';
const LABEL_LIMIT = 120; // px
const TABLE_COLUMNS = 16; // of a table that would else be far too wide
const HEIGHT = 300; // px, of a picture whose cells are not square, as far as their limits permit
const HINT = "Point at a cell, or go there with the arrow keys, to read its number.";

/**
 * settings:
 *   name: what a screen reader calls it;  matrix, scale, unit: of the legend
 *   rows, columns: {labels, ticks}; with ticks only as many labels are drawn as have room
 *   say(row, column, number): the sentence below it
 *   cell: {width: [least, most], height: [least, most]} in px; square without height
 *   isBlank(row, column): cells without a colour;  hint: what stands there before a cell is chosen
 */
function heatMap(settings) {
  return new HeatMap(settings).element;
}

class HeatMap {
  constructor(settings) {
    Object.assign(this, settings);
    this.cursor = null;
    this.canvas = make("canvas", {
      tabindex: 0,
      role: "application",
      "aria-roledescription": "matrix",
      "aria-label": `${this.name}. ${this.matrix.rows} rows, ${this.matrix.columns} columns. Arrow keys go from cell to cell.`,
    });
    this.readout = make("p", { class: "readout", role: "status" }, this.hint ?? HINT);
    this.frame = make("div", { class: "sideways map-frame" }, this.canvas);
    this.element = make(
      "figure",
      { class: "map" },
      this.frame,
      make(
        "figcaption",
        {},
        this.readout,
        legend(this.scale, this.unit ?? ""),
        onDemand("As a table", () => this.table()),
      ),
    );
    this.connect();
  }

  connect() {
    const { canvas } = this;
    const point = (event) => this.choose(this.cellAt(event));
    canvas.addEventListener("pointermove", point);
    canvas.addEventListener("pointerdown", point);
    canvas.addEventListener("pointerleave", () => this.leave());
    canvas.addEventListener("keydown", (event) => this.onKey(event));
    canvas.addEventListener("focus", () => {
      if (canvas.matches(":focus-visible")) this.choose(this.cursor ?? [0, 0]);
    });
    canvas.addEventListener("blur", () => this.leave());
    new ResizeObserver(() => this.draw()).observe(this.frame);
    redraws.set(canvas, () => {
      this.image = null;
      this.draw();
    });
  }

  // Geometry, in CSS pixels

  layout() {
    const { rows, columns, matrix, cell } = this;
    const context = this.canvas.getContext("2d");
    context.font = `13px ${FONT}`;
    const widthOf = (label) => Math.min(context.measureText(plain(label)).width, LABEL_LIMIT);
    const [least, most] = cell.width;
    this.left = Math.ceil(Math.max(...rows.labels.map(widthOf))) + 8;
    const room = this.frame.clientWidth - this.left - 2;
    this.width = Math.min(Math.max(room / matrix.columns, least), most);
    if (this.width > 3) this.width = Math.floor(this.width);
    this.height = cell.height
      ? Math.min(Math.max(HEIGHT / matrix.rows, cell.height[0]), cell.height[1])
      : this.width;
    const longest = Math.ceil(Math.max(...columns.labels.map(widthOf)));
    this.upright = !columns.ticks && longest + 4 > this.width;
    this.top = this.upright ? longest + 10 : 22;
    this.rowStep = rows.ticks ? Math.ceil(16 / this.height) : 1;
    this.columnStep = columns.ticks ? niceStep((longest + 14) / this.width) : 1;
  }

  cellAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - this.left) / this.width);
    const row = Math.floor((event.clientY - box.top - this.top) / this.height);
    const inside =
      row >= 0 && column >= 0 && row < this.matrix.rows && column < this.matrix.columns;
    return inside ? [row, column] : null;
  }

  // Drawing

  draw() {
    if (!this.frame.clientWidth) return;
    this.layout();
    const { canvas, matrix, left, top } = this;
    const size = [left + this.width * matrix.columns + 2, top + this.height * matrix.rows + 2];
    const ratio = devicePixelRatio || 1;
    [canvas.width, canvas.height] = size.map((length) => Math.ceil(length * ratio));
    styled(canvas, { width: `${size[0]}px`, height: `${size[1]}px` });
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.font = `${this.width < 17 && this.upright ? 12 : 13}px ${FONT}`;
    this.drawCells(context);
    this.drawLabels(context);
    if (this.cursor) this.drawCursor(context);
  }

  drawCells(context) {
    const { matrix, left, top, width, height } = this;
    this.image ??= pixels(matrix, this.scale, this.isBlank);
    const size = [width * matrix.columns, height * matrix.rows];
    context.fillStyle = themeColour("blank"); // seen where a cell has no colour
    context.fillRect(left, top, ...size);
    context.imageSmoothingEnabled = width < 1;
    context.drawImage(this.image, left, top, ...size);
    context.strokeStyle = themeColour("line");
    context.strokeRect(left - 0.5, top - 0.5, size[0] + 1, size[1] + 1);
    if (width >= 38 && height >= 20) this.drawNumbers(context);
  }

  drawNumbers(context) {
    const { matrix, left, top, width, height } = this;
    const colour = colouring(this.scale);
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let r = 0; r < matrix.rows; r++)
      for (let c = 0; c < matrix.columns; c++) {
        if (this.isBlank?.(r, c)) continue;
        context.fillStyle = isBright(colour(matrix.at(r, c))) ? "#1c2024" : "#ffffff";
        const text = fixed(matrix.at(r, c));
        context.fillText(text, left + (c + 0.5) * width, top + (r + 0.5) * height + 1);
      }
  }

  drawLabels(context) {
    const { rows, columns, left, top, width, height } = this;
    const chosen = this.cursor ?? [];
    context.textBaseline = "middle";
    rows.labels.forEach((label, r) => {
      if (r % this.rowStep && r !== chosen[0]) return;
      if (this.rowStep > 1 && tooNear(r, chosen[0], this.rowStep)) return;
      context.fillStyle = themeColour(r === chosen[0] ? "accent" : "quiet");
      context.textAlign = "right";
      context.fillText(plain(label), left - 6, top + (r + 0.5) * height + 1, LABEL_LIMIT);
    });
    columns.labels.forEach((label, c) => {
      if (c % this.columnStep && c !== chosen[1]) return;
      if (this.columnStep > 1 && tooNear(c, chosen[1], this.columnStep)) return;
      context.fillStyle = themeColour(c === chosen[1] ? "accent" : "quiet");
      this.drawColumnLabel(context, label, left + (c + 0.5) * width, top);
    });
  }

  drawColumnLabel(context, label, x, y) {
    context.save();
    context.translate(x, y - (this.upright ? 6 : 11));
    if (this.upright) context.rotate(-Math.PI / 2);
    context.textAlign = this.upright ? "left" : "center";
    context.fillText(plain(label), 0, 0, LABEL_LIMIT);
    context.restore();
  }

  drawCursor(context) {
    const [row, column] = this.cursor;
    const size = [Math.max(this.width, 5), Math.max(this.height, 5)];
    const place = [this.left + column * this.width, this.top + row * this.height];
    for (const [colour, thickness] of [
      ["surface", 5],
      ["accent", 2.5],
    ]) {
      context.strokeStyle = themeColour(colour);
      context.lineWidth = thickness;
      context.strokeRect(...place, ...size);
    }
  }

  // Choosing a cell

  choose(cell) {
    if (!cell) return;
    this.cursor = cell;
    this.readout.textContent = this.say(...cell, this.matrix.at(...cell));
    this.draw();
  }

  leave() {
    if (document.activeElement === this.canvas) return;
    this.cursor = null;
    this.draw();
  }

  onKey(event) {
    const [row, column] = this.cursor ?? [0, 0];
    const { rows, columns } = this.matrix;
    const next = {
      ArrowLeft: [row, column - 1],
      ArrowRight: [row, column + 1],
      ArrowUp: [row - 1, column],
      ArrowDown: [row + 1, column],
      Home: [row, 0],
      End: [row, columns - 1],
      PageUp: [0, column],
      PageDown: [rows - 1, column],
    }[event.key];
    if (!next) return;
    event.preventDefault();
    this.choose([within(next[0], rows), within(next[1], columns)]);
  }

  // The same as text

  table() {
    const { matrix, rows, columns } = this;
    const count = matrix.columns > 4 * TABLE_COLUMNS ? TABLE_COLUMNS : matrix.columns;
    const head = ["", ...columns.labels.slice(0, count)];
    const body = rows.labels.map((label, r) => [
      label,
      ...rowOf(matrix, r)
        .slice(0, count)
        .map((x, c) => (this.isBlank?.(r, c) ? "" : brief(x))),
    ]);
    const whole = count === matrix.columns;
    return make(
      "div",
      {},
      whole ? null : paragraph(`The first ${count} of ${matrix.columns} columns.`),
      table(this.name, head, body),
    );
  }
}

/** The sign of a blank as a thin line: fonts draw "▁" as a block, far below the letters. */
function plain(label) {
  return label.replaceAll("▁", "_");
}

function within(i, count) {
  return Math.min(Math.max(i, 0), count - 1);
}

function tooNear(i, chosen, step) {
  return chosen !== undefined && i !== chosen && Math.abs(i - chosen) < step;
}

/** 1, 2, 4, 8, … */
function niceStep(least) {
  return 2 ** Math.max(Math.ceil(Math.log2(least)), 0);
}

/** Whether black is easier to read on a colour than white. */
function isBright(colour) {
  const [red, green, blue] = colour.map((x) => (x / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18;
}

function counted(n, first = 0) {
  return Array.from({ length: n }, (_, i) => String(i + first));
}
