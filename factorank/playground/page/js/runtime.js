// The models: loaded when a tab first needs them, from the folder of the page and nowhere else.

const base = new URL("../", import.meta.url);
let library;
const sessions = new Map();

/** What the page knows of its models. */
export const facts = fetch(new URL("models/models.json", base)).then((answer) => answer.json());

async function runtime() {
  library ??= import(new URL("runtime/ort.wasm.min.mjs", base).href).then((ort) => {
    ort.env.wasm.wasmPaths = new URL("runtime/", base).href;
    // Threads need a page that is isolated from others, which depends on the host; half of the cores stay free.
    const half = Math.floor((navigator.hardwareConcurrency || 1) / 2);
    ort.env.wasm.numThreads = self.crossOriginIsolated ? Math.min(4, Math.max(1, half)) : 1;
    ort.env.logLevel = "error";
    return ort;
  });
  return library;
}

/** A function from named tensors {type, data, dims} to named tensors, for one of the models. */
export async function model(name) {
  const ort = await runtime();
  if (!sessions.has(name)) {
    const path = new URL(`models/${name}.onnx`, base).href;
    const options = { executionProviders: ["wasm"], graphOptimizationLevel: "all" };
    sessions.set(name, ort.InferenceSession.create(path, options));
  }
  const session = await sessions.get(name);
  return async (inputs) => {
    const feeds = {};
    for (const [key, value] of Object.entries(inputs)) feeds[key] = new ort.Tensor(value.type, value.data, value.dims);
    return session.run(feeds);
  };
}

export const text = (name) => fetch(new URL(`models/${name}`, base)).then((answer) => answer.text());
