// The application's visit in Node.js: `node node.mjs MODEL`; prints what it has seen.

await import("./main.js");
console.log(JSON.stringify(await globalThis.visit(process.argv[2])));
