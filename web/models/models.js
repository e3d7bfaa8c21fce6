// The models dialog: known and stored models, an address, dropped files, downloads with progress.

import { findModel } from "./address.js";
import { KNOWN, deviceFacts, needOf, verdict } from "./device.js";
import { download } from "./downloads.js";
import { filesOf, modelOf } from "./dropped.js";
import { button, frame, progressRow, row } from "./elements.js";
import { list, opened, remove, room } from "./store.js";
import { ModelError, duration, formatted, size, text, useLanguage } from "./texts.js";

/** @typedef {File | FileSystemFileHandle} Handle */

/** Downloads of this tab, by address: they go on while the dialog is closed. */
const running = new Map();

/**
 * Shows the dialog in the page's language. A chosen model closes it and calls `onOpen` once, with what `load`
 * takes. `onNotice` gets the end of a download while the dialog is closed.
 * @param {HTMLDialogElement} dialog
 * @param {{onOpen: (model: Handle | Handle[], name: string, mmproj?: Handle) => void,
 *   onNotice: (text: string, isFailure: boolean) => void}} options
 */
export async function openModels(dialog, { onOpen, onNotice }) {
  await useLanguage();
  if (dialog.open) return; // by a second click
  const view = new View(dialog, onOpen, onNotice);
  dialog.showModal();
  await view.fill();
}

/**
 * The one model among chosen files; its errors are in the page's language.
 * @param {File[]} files
 * @returns {Promise<{model: File | File[], name: string, mmproj?: File}>}
 * @throws {ModelError}
 */
export async function oneModel(files) {
  await useLanguage();
  return modelOf(files);
}

class View {
  #dialog;
  #onOpen;
  #onNotice;
  #at;
  #isGone = false;

  constructor(dialog, onOpen, onNotice) {
    [this.#dialog, this.#onOpen, this.#onNotice] = [dialog, onOpen, onNotice];
    this.#at = frame(dialog);
    this.#listen();
  }

  #listen() {
    const { form, address, close, files, folder, drop } = this.#at;
    close.addEventListener("click", () => this.#dialog.close());
    this.#dialog.addEventListener("close", () => (this.#isGone = true), { once: true });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (address.value.trim()) this.#get(address.value.trim());
    });
    for (const input of [files, folder]) {
      input.addEventListener("change", () => this.#try(() => this.#take([...input.files])));
    }
    drop.addEventListener("dragover", (event) => (event.preventDefault(), drop.classList.add("over")));
    drop.addEventListener("dragleave", () => drop.classList.remove("over"));
    drop.addEventListener("drop", (event) => {
      event.preventDefault();
      drop.classList.remove("over");
      void this.#try(async () => this.#take(await filesOf(event.dataTransfer)));
    });
  }

  /** Fills the lists and takes up the downloads that are running. */
  async fill() {
    await this.#try(async () => {
      for (const job of running.values()) this.#show(job, false);
      const facts = await deviceFacts();
      await this.#fillStored();
      await this.#fillDevice(facts);
      this.#at.known.replaceChildren(...KNOWN.map((model) => this.#knownRow(model, facts)));
    });
  }

  async #fillDevice({ memory, isMost, buffer }) {
    const { free } = await room();
    const known = isMost ? "device.memory.most" : "device.memory";
    this.#at.device.textContent = text("device", {
      memory: memory ? text(known, { bytes: size(memory) }) : text("device.memory.unknown"),
      gpu: buffer ? text("device.gpu", { bytes: size(buffer) }) : text("device.cpu"),
      free: size(free),
    });
  }

  async #fillStored() {
    const [models, { free }, isKept] = await Promise.all([list(), room(), navigator.storage.persisted?.()]);
    const rows = models.map((stored) => this.#storedRow(stored));
    this.#at.stored.replaceChildren(...rows);
    const used = size(models.reduce((sum, { done }) => sum + done, 0));
    const kept = text(isKept ? "stored.kept" : "stored.evictable");
    this.#at.total.textContent = rows.length
      ? text("stored.total", { used, free: size(free), kept })
      : text("stored.none");
  }

  #storedRow(stored) {
    const { model, done, total, isComplete } = stored;
    const { name } = model;
    const partial = { done: size(done), total: total ? size(total) : "?" };
    const bytes = isComplete ? size(done) : text("stored.partial", partial);
    const act = isComplete
      ? button("open", { name }, () => this.#try(() => this.#openStored(stored.key, name)))
      : button("resume", { name }, () => this.#get(model.address, model));
    const sure = text("delete.sure", { bytes: size(done) });
    const drop = button("delete", { name }, () => {
      if (drop.textContent !== sure) return (drop.textContent = sure);
      return this.#try(async () => (await remove(stored), await this.#fillStored(), this.#at.close.focus()));
    });
    return row({ name, detail: [model.address, bytes], buttons: [act, drop] });
  }

  /** Opens a stored model, unless another tab deleted it. */
  async #openStored(key, name) {
    const handles = await opened(key);
    if (handles) return this.#openHandles(handles, name, this.#at.images.checked);
    await this.#fillStored();
    throw new ModelError("stored.gone", { name });
  }

  #knownRow(model, facts) {
    const { id, name } = model;
    const { bytes, context } = needOf(model);
    const judged = verdict(bytes, facts);
    const need = { bytes: size(model.bytes), memory: size(bytes), context: formatted(context) };
    const detail = [id, text("known.need", need), text(`verdict.${judged}`)];
    return row({ name, detail, judged, buttons: [button("download", { name }, () => this.#get(id))] });
  }

  /** Downloads a model by its address (or one that was found before), then opens it. */
  #get(address, found = null) {
    if (running.has(address)) return;
    this.#say("");
    const withTower = this.#at.images.checked;
    const job = startJob({ address, found, withTower }, (note) => this.#say(note));
    this.#noticeEnd(job); // before #show, which closes the dialog at the end
    this.#show(job, true);
  }

  /** Passes the end of a job to the page, unless the dialog is open and shows it. */
  #noticeEnd(job) {
    const notice = (words, isFailure) => this.#dialog.open || this.#onNotice(words, isFailure);
    const ended = () => notice(text("note.stored", { name: job.name }), false);
    const failed = ({ message }) => notice(text("note.failed", { name: job.name, why: message }), true);
    job.ended.then(ended, (error) => job.stop.signal.aborted || failed(error));
  }

  /** Shows a job until it ends, with a button that stops it; `opens` its model then. */
  #show(job, opens) {
    const { made, tell, end } = progressRow(job.name, () => job.stop.abort());
    this.#at.jobs.append(made);
    job.listeners.add(() => tell(job.name, job.progress, line(job.progress)));
    const opened = (handles) => opens && !this.#isGone && this.#openHandles(handles, job.name, job.withTower);
    const failed = (error) => (job.stop.signal.aborted ? this.#sayStopped(job) : this.#fail(error));
    void job.ended.then(opened, failed).finally(() => {
      end();
      if (!this.#isGone) this.#fillStored().catch((error) => this.#fail(error));
    });
  }

  #sayStopped({ name, progress }) {
    this.#say(text("cancelled", { name, done: size(progress?.done ?? 0) }));
  }

  #take(files) {
    const { model, name, mmproj } = modelOf(files);
    this.#open(model, name, mmproj);
  }

  /** Opens a stored model, with its vision tower or without. */
  #openHandles({ model, mmproj }, name, withTower) {
    this.#open(model, name, withTower ? mmproj : undefined);
  }

  #open(model, name, mmproj) {
    this.#dialog.close();
    this.#onOpen(model, name, mmproj);
  }

  async #try(work) {
    try {
      this.#say("");
      await work();
    } catch (error) {
      this.#fail(error);
    }
  }

  #say(note) {
    this.#at.note.textContent = note;
    this.#at.problem.textContent = "";
  }

  #fail(error) {
    this.#at.note.textContent = "";
    this.#at.problem.textContent = error.message;
  }
}

/**
 * A download of this tab. `ended` resolves to handles of the files. `withTower` is the box at the start.
 * @typedef {{address: string, name: string, withTower: boolean, stop: AbortController,
 *   listeners: Set<() => void>, progress: import("./downloads.js").Progress | null,
 *   ended: Promise<import("./store.js").Handles>}} Job
 */

/** Starts a job of an address. @returns {Job} */
function startJob({ address, found, withTower }, say) {
  const name = found?.name ?? address;
  const job = { address, name, withTower, stop: new AbortController(), progress: null };
  job.listeners = new Set();
  const find = (signal) => found ?? findOrStored(address, { withTower, signal }, say);
  job.ended = runJob(job, find).finally(() => running.delete(address));
  running.set(address, job);
  return job;
}

async function runJob(job, find) {
  const { signal } = job.stop;
  const tell = (facts) => {
    Object.assign(job, facts);
    for (const listener of job.listeners) listener();
  };
  const model = await find(signal);
  tell({ name: model.name });
  return download(model, { onProgress: (progress) => tell({ progress }), signal });
}

/** A model by its address. While the hub cannot be reached, the one stored under that address. */
async function findOrStored(address, options, say) {
  try {
    const found = await findModel(address, options);
    if (found.note) say(found.note);
    return found;
  } catch (error) {
    if (!(error instanceof ModelError) || error.key !== "unreachable") throw error;
    const stored = (await list()).find(({ model, isComplete }) => isComplete && model.address === address);
    if (!stored) throw error;
    say(text("note.offline", { hub: error.values.place, name: stored.model.name }));
    return stored.model;
  }
}

/** The line below a progress bar. */
function line(progress) {
  if (!progress) return "";
  const { done, total, rate } = progress;
  if (total === null) return text("progress.unknown", { done: size(done), rate: size(rate) });
  const values = { done: size(done), total: size(total), rate: size(rate) };
  if (!rate) return text("progress.start", values);
  return text("progress.line", { ...values, left: duration((total - done) / rate) });
}
