// The content of a message: text, or a list of parts with images. Pure.

/** Text of a message's content: a string, null or a list of parts. */
export function textOf(content) {
  return Array.isArray(content) ? content.map((part) => part.text ?? "").join("") : (content ?? "");
}

/** The images of a content as data URIs. */
export function imagesOf(content) {
  return Array.isArray(content) ? content.map(imageOf).filter(Boolean) : [];
}

/** The data URI of a part of a chat's message, or of a session that the terminal saved; else "". */
function imageOf(part) {
  const image = part?.type === "image" ? part.image : part?.image_url?.url ?? part?.image_url;
  return typeof image === "string" && image.startsWith("data:") ? image : "";
}

/** A content of images, then a text; the text alone without images. */
export function contentOf(text, images) {
  if (!images.length) return text;
  const parts = images.map((url) => ({ type: "image_url", image_url: { url } }));
  return text ? [...parts, { type: "text", text }] : parts;
}

/** True for a text, null, or a list of known parts. */
export function isContent(content) {
  if (content === null || typeof content === "string") return true;
  return Array.isArray(content) && content.every((part) => typeof part?.text === "string" || imageOf(part));
}
