// Opens a WebGPU device.

export const TIMESTAMPS = "timestamp-query";

/**
 * A device of the adapter whose name contains `spec.adapter`, with facts of both.
 * @param {GPU | undefined} gpu
 * @param {{adapter?: string, limits?: Record<string, number>}} spec a limit of 0 is the adapter's
 * @returns {Promise<{device: GPUDevice, adapter: Record<string, string>, limits: Record<string, number>}>}
 */
export async function openDevice(gpu, spec) {
  const adapter = await chooseAdapter(gpu, spec.adapter ?? "");
  const wanted = Object.entries(spec.limits ?? {}).map(([name, n]) => [name, n || adapter.limits[name]]);
  const requiredLimits = Object.fromEntries(wanted);
  const requiredFeatures = [TIMESTAMPS].filter((name) => adapter.features.has(name));
  const device = await adapter.requestDevice({ requiredLimits, requiredFeatures });
  return { device, adapter: describe(adapter.info), limits: plainLimits(device.limits) };
}

async function chooseAdapter(gpu, name) {
  if (!gpu) {
    throw new Error(
      "this browser offers no WebGPU; use a current Chrome, Edge, Firefox or Safari, on https or localhost "
        + "(Firefox on Linux: set dom.webgpu.enabled in about:config)",
    );
  }
  const found = [];
  for (const options of [{}, { forceFallbackAdapter: true }]) {
    const adapter = await gpu.requestAdapter(options);
    const text = adapter && Object.values(describe(adapter.info)).join(" ");
    if (adapter && text.toLowerCase().includes(name.toLowerCase())) return adapter;
    if (text) found.push(text.trim());
    if (!name && adapter) break;
  }
  const rest = "switch on hardware acceleration in the browser's settings, or update the graphics driver";
  if (!found.length) throw new Error(`this browser has WebGPU, but it offers no adapter; ${rest}`);
  throw new Error(`no adapter matches '${name}'; found: ${[...new Set(found)].join("; ")}`);
}

/** Text facts of an adapter. Most browsers hide `device`; Firefox hides all but the kind. */
function describe({ vendor, architecture, device, description, isFallbackAdapter }) {
  const kind = isFallbackAdapter ? "software adapter" : "adapter without a name";
  const name = device || `${vendor} ${architecture}`.trim() || (description ? "" : kind);
  return { vendor, architecture, device: name, description };
}

function plainLimits(limits) {
  const names = Object.keys(Object.getPrototypeOf(limits));
  const entries = names.map((name) => [name, limits[name]]);
  return Object.fromEntries(entries.filter(([, value]) => typeof value === "number"));
}
