// Addresses of the files that the worker fetches: beside it, or those of the package's entry, since bundlers
// rename files, or those inside the page of one file. Either sets `globalThis.camelidFiles`: {urls, by name,
// createPyodideModule, pyodide: facts of its build}; the page of one file has it, too (one_file/boot.js).

const given = globalThis.camelidFiles;

/** True in the page of one file, which has its model inside. */
export const isOneFile = Boolean(given?.model);

/** Resolves once all files of the page of one file are read; undefined elsewhere. */
export const arrived = given?.whole;

/** True if Python's memory snapshot is among the files; the npm package has none. */
export const hasSnapshot = !given || "snapshot.bin" in given.urls;

/**
 * The address of a file of the site.
 * @param {string} name as in the site: "camelid.zip", "wasm-simd/camelid_cpu.wasm"
 */
export function fileUrl(name) {
  return given?.urls[name] ?? new URL(name, import.meta.url).href;
}

/** Options of loadPyodide: places of Pyodide's files. */
export function pyodideFiles() {
  if (!given) return { indexURL: new URL("pyodide/", import.meta.url).href };
  return {
    // Pyodide appends "pyodide.asm.wasm"; behind a # it is no part of the address.
    indexURL: given.indexURL ?? `${fileUrl("pyodide/pyodide.asm.wasm")}#/`,
    stdLibURL: fileUrl("pyodide/python_stdlib.zip"),
    lockFileContents: { info: given.pyodide, packages: {} },
    packageBaseUrl: "/", // of no package
    createPyodideModule: given.createPyodideModule,
  };
}
