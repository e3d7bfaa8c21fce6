// Images for core/camelid/page/images.py: decoded by the browser, or raw pixels, which any host reads.

import { fromBmp } from "./bmp.js";
import { resized } from "./resample.js";

const READ_AS = { willReadFrequently: true, colorSpace: "srgb" };

/** Pixels in RGB, 8 bits a value. */
export class Raster {
  /**
   * @param {number} width
   * @param {number} height
   * @param {Uint8Array} rgb [height, width, 3]
   */
  constructor(width, height, rgb) {
    [this.width, this.height, this.rgb] = [width, height, rgb];
  }

  /** The image at another size, with the values of Pillow's filter. */
  resized(width, height, filter) {
    return new Raster(width, height, resized(this.rgb, [this.width, this.height], [width, height], filter));
  }

  /** @returns {Uint8Array} [3, height, width] */
  planes() {
    const n = this.width * this.height;
    const planes = new Uint8Array(3 * n);
    for (let c = 0; c < 3; c += 1) for (let i = 0; i < n; i += 1) planes[c * n + i] = this.rgb[3 * i + c];
    return planes;
  }
}

/**
 * Opens an image. Its size is known before its pixels are read.
 * @param {Uint8Array} file
 * @returns {Promise<{width: number, height: number, read: () => Raster, close: () => void}>} rejects if the
 *   host cannot decode it
 */
export async function openImage(file) {
  const raw = fromBmp(file);
  if (raw) {
    const { width, height, rgb } = raw;
    return { width, height, read: () => new Raster(width, height, rgb), close() {} };
  }
  if (!globalThis.createImageBitmap) throw new Error("this host has no decoder of image files");
  // As Pillow reads images: turned by their orientation, without a colour profile.
  const bitmap = await createImageBitmap(new Blob([file]), {
    imageOrientation: "from-image",
    premultiplyAlpha: "none",
    colorSpaceConversion: "none",
  });
  const { width, height } = bitmap;
  return { width, height, read: () => rasterOf(bitmap), close: () => bitmap.close() };
}

function rasterOf(bitmap) {
  const { width, height } = bitmap;
  const context = new OffscreenCanvas(width, height).getContext("2d", READ_AS);
  context.drawImage(bitmap, 0, 0);
  const { data } = context.getImageData(0, 0, width, height);
  // A canvas multiplies colours by alpha, which loses bits; Pillow only leaves alpha out.
  return new Raster(width, height, withoutAlpha(isOpaque(data) ? data : exactly(bitmap)));
}

function isOpaque(rgba) {
  for (let at = 3; at < rgba.length; at += 4) if (rgba[at] !== 255) return false;
  return true;
}

function withoutAlpha(rgba) {
  const rgb = new Uint8Array((rgba.length / 4) * 3);
  for (let at = 0, from = 0; at < rgb.length; from += 4) {
    rgb[at++] = rgba[from];
    rgb[at++] = rgba[from + 1];
    rgb[at++] = rgba[from + 2];
  }
  return rgb;
}

/** The values of a transparent image [height, width, 4] as its file has them, through a texture. */
function exactly(bitmap) {
  const { width, height } = bitmap;
  const gl = new OffscreenCanvas(1, 1).getContext("webgl");
  if (!gl || Math.max(width, height) > gl.getParameter(gl.MAX_TEXTURE_SIZE)) {
    throw new Error("its transparent pixels cannot be read in this browser; save it without transparency");
  }
  try {
    gl.bindTexture(gl.TEXTURE_2D, gl.createTexture());
    gl.pixelStorei(gl.UNPACK_PREMULTIPLY_ALPHA_WEBGL, false);
    gl.pixelStorei(gl.UNPACK_COLORSPACE_CONVERSION_WEBGL, gl.NONE);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, gl.RGBA, gl.UNSIGNED_BYTE, bitmap);
    gl.bindFramebuffer(gl.FRAMEBUFFER, gl.createFramebuffer());
    gl.framebufferTexture2D(
      gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, gl.getParameter(gl.TEXTURE_BINDING_2D), 0,
    );
    const rgba = new Uint8Array(width * height * 4);
    gl.readPixels(0, 0, width, height, gl.RGBA, gl.UNSIGNED_BYTE, rgba);
    return rgba;
  } finally {
    gl.getExtension("WEBGL_lose_context")?.loseContext();
  }
}
