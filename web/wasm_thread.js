// Compute worker: an instance of the kernels over the shared memory; it runs until the pool is stopped.

self.onmessage = async ({ data: { module, memory, pool, thread, stack } }) => {
  try {
    const { exports } = await WebAssembly.instantiate(module, { env: { memory } });
    exports.__stack_pointer.value = stack;
    self.postMessage({ fault: "" });
    exports.cam_work(pool, thread);
  } catch (error) {
    self.postMessage({ fault: `${error.name}: ${error.message}` });
  }
};
