// Raw pixels as a file: BMP with 24 bits a pixel, which any host writes and reads without a codec.

const HEADER = 54;
const DOTS_PER_METRE = 2835;

const stride = (width) => Math.ceil((width * 3) / 4) * 4; // rows are padded to words

/**
 * @param {{width: number, height: number, data: Uint8Array}} pixels RGB or RGBA, whose alpha is left out
 * @returns {Uint8Array} the file
 */
export function toBmp({ width, height, data }) {
  const each = data.length / (width * height);
  const file = new Uint8Array(HEADER + stride(width) * height);
  file.set(headerOf(width, height));
  for (let y = 0; y < height; y += 1) {
    let at = HEADER + (height - 1 - y) * stride(width);
    for (let from = y * width * each; from < (y + 1) * width * each; from += each) {
      file[at++] = data[from + 2];
      file[at++] = data[from + 1];
      file[at++] = data[from];
    }
  }
  return file;
}

/**
 * The pixels of a file of `toBmp`; null for any other, even for another BMP.
 * @param {Uint8Array} file
 * @returns {{width: number, height: number, rgb: Uint8Array} | null}
 */
export function fromBmp(file) {
  if (file.length < HEADER) return null;
  const view = new DataView(file.buffer, file.byteOffset, HEADER);
  const [width, height] = [view.getInt32(18, true), view.getInt32(22, true)];
  if (width < 1 || height < 1 || file.length !== HEADER + stride(width) * height) return null;
  if (!headerOf(width, height).every((byte, i) => byte === file[i])) return null;
  const rgb = new Uint8Array(width * height * 3);
  let at = 0;
  for (let y = height - 1; y >= 0; y -= 1) {
    const start = HEADER + y * stride(width);
    for (let from = start; from < start + width * 3; from += 3) {
      rgb[at++] = file[from + 2];
      rgb[at++] = file[from + 1];
      rgb[at++] = file[from];
    }
  }
  return { width, height, rgb };
}

/** BITMAPFILEHEADER and BITMAPINFOHEADER. */
function headerOf(width, height) {
  const header = new Uint8Array(HEADER);
  const view = new DataView(header.buffer);
  const bytes = stride(width) * height;
  header.set([0x42, 0x4d]); // "BM"
  view.setUint32(2, HEADER + bytes, true);
  view.setUint32(10, HEADER, true);
  view.setUint32(14, 40, true); // bytes of the second header
  view.setInt32(18, width, true);
  view.setInt32(22, height, true);
  view.setUint16(26, 1, true); // planes
  view.setUint16(28, 24, true); // bits a pixel
  view.setUint32(34, bytes, true);
  view.setInt32(38, DOTS_PER_METRE, true);
  view.setInt32(42, DOTS_PER_METRE, true);
  return header;
}
