// Builds an application with a bundler without configuration: `node bundle.mjs vite|webpack FOLDER OUT`.

const [bundler, folder, out] = process.argv.slice(2);

const BUNDLERS = {
  vite: async () => {
    const { build } = await import("vite");
    // A relative base, since the tests' server has the site in a folder.
    await build({ root: folder, base: "./", configFile: false, logLevel: "warn", build: { outDir: out } });
  },
  webpack: async () => {
    const { default: webpack } = await import("webpack");
    // Minifying the worker, which works, would take 13 s of processor time.
    const optimization = { minimize: false };
    const output = { path: out };
    const options = { mode: "production", context: folder, entry: "./main.js", output, optimization };
    await new Promise((resolve, reject) => {
      webpack(options, (error, stats) => {
        if (error || stats.hasErrors()) reject(error ?? new Error(stats.toString("errors-only")));
        else resolve();
      });
    });
  },
};

await BUNDLERS[bundler]();
