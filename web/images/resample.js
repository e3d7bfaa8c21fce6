// Resizes 8-bit images with the values of Pillow 13: a filter is stretched over the source where an image
// shrinks, its weights are rounded to fixed point, and each of two passes rounds to 8 bits.

const PRECISION = 22; // bits of a weight behind the point: 32 without 8 of a value and 2 of overshoot
const ONE = 2 ** PRECISION;

/** Filters by Pillow's names: [half width in source pixels, weight at a distance]. */
export const FILTERS = {
  bilinear: [1, (x) => Math.max(1 - Math.abs(x), 0)],
  bicubic: [2, cubic],
  lanczos: [3, (x) => (Math.abs(x) < 3 ? sinc(x) * sinc(x / 3) : 0)],
};

/** Keys' cubic convolution with a = -0.5. */
function cubic(x) {
  const [a, at] = [-0.5, Math.abs(x)];
  if (at < 1) return ((a + 2) * at - (a + 3)) * at * at + 1;
  return at < 2 ? (((at - 5) * at + 8) * at - 4) * a : 0;
}

function sinc(x) {
  return x === 0 ? 1 : Math.sin(x * Math.PI) / (x * Math.PI);
}

/**
 * @param {Uint8Array} rgb [height, width, 3]
 * @param {[number, number]} size width and height
 * @param {[number, number]} wanted width and height
 * @param {"bilinear" | "bicubic" | "lanczos"} name
 * @returns {Uint8Array} of the wanted size
 */
export function resized(rgb, [width, height], [wantedWidth, wantedHeight], name) {
  if (!Object.hasOwn(FILTERS, name)) throw new Error(`the filter '${name}' is unknown`);
  const passes = [];
  const taps = (n, wanted) => tapsOf(n, wanted, FILTERS[name]);
  if (wantedWidth !== width) passes.push((it, rows) => alongRows(it, rows, taps(width, wantedWidth)));
  if (wantedHeight !== height) passes.push((it) => alongColumns(it, height, taps(height, wantedHeight)));
  // Pillow 13 begins with the columns if they lose more than twice as many pixels as the rows do.
  const lost = height - wantedHeight;
  const isColumnsFirst = passes.length === 2 && lost > 0 && lost > 2 * (width - wantedWidth);
  if (isColumnsFirst) passes.reverse();
  return passes.reduce((it, pass) => pass(it, isColumnsFirst ? wantedHeight : height), rgb);
}

/** The source pixels of each target pixel of an axis: their first, and their weights in fixed point. */
function tapsOf(n, wanted, [reach, weight]) {
  const scale = n / wanted;
  const stretch = Math.max(scale, 1);
  return Array.from({ length: wanted }, (_, i) => {
    const center = (i + 0.5) * scale;
    const first = Math.max(Math.trunc(center - reach * stretch + 0.5), 0);
    const end = Math.min(Math.trunc(center + reach * stretch + 0.5), n);
    const weights = Array.from(
      { length: end - first },
      (_, j) => weight((j + first - center + 0.5) * (1 / stretch)),
    );
    const sum = weights.reduce((total, each) => total + each, 0);
    return { first, weights: Float64Array.from(weights, (each) => rounded(sum ? each / sum : each)) };
  });
}

function rounded(weight) {
  return Math.trunc(weight * ONE + (weight < 0 ? -0.5 : 0.5));
}

function clipped(sum) {
  return Math.min(Math.max(sum >> PRECISION, 0), 255);
}

function alongRows(rgb, height, taps) {
  const width = rgb.length / height / 3;
  const made = new Uint8Array(height * taps.length * 3);
  let at = 0;
  for (let y = 0; y < height; y += 1) {
    for (const { first, weights } of taps) {
      let [red, green, blue] = [ONE / 2, ONE / 2, ONE / 2];
      let from = (y * width + first) * 3;
      for (let j = 0; j < weights.length; j += 1) {
        red += rgb[from++] * weights[j];
        green += rgb[from++] * weights[j];
        blue += rgb[from++] * weights[j];
      }
      made[at++] = clipped(red);
      made[at++] = clipped(green);
      made[at++] = clipped(blue);
    }
  }
  return made;
}

function alongColumns(rgb, height, taps) {
  const row = rgb.length / height;
  const made = new Uint8Array(taps.length * row);
  for (const [y, { first, weights }] of taps.entries()) {
    const sums = new Float64Array(row).fill(ONE / 2);
    for (const [j, weight] of weights.entries()) {
      const from = (first + j) * row;
      for (let x = 0; x < row; x += 1) sums[x] += rgb[from + x] * weight;
    }
    for (let x = 0; x < row; x += 1) made[y * row + x] = clipped(sums[x]);
  }
  return made;
}
