// Numbers of the report: arrays, and how numbers are written.

/** An array of the report as {shape, values}. `mt.inspection.arrays` says how it is stored. */
function decode(stored) {
  if (Array.isArray(stored)) return { shape: shapeOf(stored), values: stored.flat(Infinity) };
  const bytes = Uint8Array.from(atob(stored.data), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const values = new Float64Array(bytes.length / 2);
  for (let i = 0; i < values.length; i++)
    values[i] = stored.lowest + stored.scale * view.getUint16(2 * i, true);
  return { shape: stored.shape, values };
}

function shapeOf(list) {
  return Array.isArray(list) ? [list.length, ...shapeOf(list[0] ?? 0)] : [];
}

/** The matrix of an array's last two dimensions at an index of those before; a vector is a row. */
function matrixOf({ shape, values }, ...index) {
  const [rows, columns] = shape.length > 1 ? shape.slice(-2) : [1, shape[0]];
  const number = index.reduce((sum, i, axis) => sum * shape[axis] + i, 0);
  const start = number * rows * columns;
  return makeMatrix(rows, columns, values.slice(start, start + rows * columns));
}

function makeMatrix(rows, columns, values) {
  return { rows, columns, values, at: (row, column) => values[row * columns + column] };
}

/** A matrix of f(row, column). */
function matrixFrom(rows, columns, f) {
  const values = new Float64Array(rows * columns);
  for (let r = 0; r < rows; r++)
    for (let c = 0; c < columns; c++) values[r * columns + c] = f(r, c);
  return makeMatrix(rows, columns, values);
}

function meanOf(matrices) {
  const [{ rows, columns }] = matrices;
  return matrixFrom(rows, columns, (r, c) => mean(matrices.map((matrix) => matrix.at(r, c))));
}

function mean(numbers) {
  return numbers.reduce((sum, x) => sum + x, 0) / numbers.length;
}

function rowOf(matrix, row) {
  return Array.from({ length: matrix.columns }, (_, column) => matrix.at(row, column));
}

function dot(a, b) {
  return a.reduce((sum, x, i) => sum + x * b[i], 0);
}

/** The entropy of a distribution, in nats. */
function entropyOf(probabilities) {
  return probabilities.reduce((sum, p) => sum - (p > 0 ? p * Math.log(p) : 0), 0);
}

function largest(values) {
  return values.reduce((most, x) => Math.max(most, x), -Infinity);
}

function smallest(values) {
  return values.reduce((least, x) => Math.min(least, x), Infinity);
}

function largestSize(values) {
  return values.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
}

/** log of the sum of exp(x), without overflow. */
function logSumExp(numbers) {
  const most = largest(numbers);
  return most + Math.log(numbers.reduce((sum, x) => sum + Math.exp(x - most), 0));
}

function fixed(x, digits = 2) {
  return x.toFixed(digits).replace("-", "−");
}

/** A number with about three digits that count. */
function brief(x) {
  const size = Math.abs(x);
  if (size > 0 && size < 0.0005) return x.toExponential(1).replaceAll("-", "−");
  return fixed(x, size < 10 ? 3 : size < 1000 ? 1 : 0);
}

function percent(p) {
  if (p > 0 && p < 0.0001) return "< 0.01 %";
  return `${(100 * p).toFixed(p < 0.1 ? 2 : 1)} %`;
}

function grouped(n) {
  return n.toLocaleString("en");
}

function shapeText(shape) {
  return shape.join(" × ");
}
