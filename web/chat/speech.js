// Read-aloud by voices of this device, and dictation recognised on this device. Both are absent elsewhere:
// other voices and recognisers send texts and speech to a server.

import { currentLanguage } from "./texts.js";

let reading = null; // id of the message that is read

/** True if the browser has a voice of this device. */
export function canRead() {
  return localVoices().length > 0;
}

/** Calls `listen` when the browser's voices are known. */
export function onVoices(listen) {
  globalThis.speechSynthesis?.addEventListener("voiceschanged", listen);
}

/**
 * Reads a text, or stops reading it.
 * @param {string} id of the message
 * @param {string} words
 */
export function toggleReading(id, words) {
  const isSame = reading === id && speechSynthesis.speaking;
  speechSynthesis.cancel();
  reading = isSame ? null : id;
  if (isSame) return;
  const utterance = new SpeechSynthesisUtterance(words);
  const voices = localVoices();
  utterance.voice = voices.find(({ lang }) => lang.startsWith(currentLanguage())) ?? voices[0];
  utterance.lang = utterance.voice.lang;
  speechSynthesis.speak(utterance);
}

function localVoices() {
  return globalThis.speechSynthesis?.getVoices().filter(({ localService }) => localService) ?? [];
}

/** True if speech in the page's language can be recognised on this device. */
export async function canDictate() {
  const Recognition = globalThis.SpeechRecognition;
  if (!Recognition?.available || !("processLocally" in Recognition.prototype)) return false;
  const wanted = { langs: [navigator.language], processLocally: true };
  return Recognition.available(wanted).then(
    (state) => state === "available",
    () => false,
  );
}

/**
 * Starts dictation on this device.
 * @param {(words: string) => void} hear gets each phrase
 * @param {() => void} end is called once, at the end or after a fault
 * @returns {() => void} stops it
 */
export function dictate(hear, end) {
  const recognition = new SpeechRecognition();
  Object.assign(recognition, { processLocally: true, lang: navigator.language, continuous: true });
  recognition.onresult = ({ results, resultIndex }) => {
    for (let i = resultIndex; i < results.length; i += 1) hear(results[i][0].transcript.trim());
  };
  recognition.onend = end;
  recognition.start();
  return () => recognition.stop();
}
