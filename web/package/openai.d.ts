export { openai } from "./camelid.js";
export type { OpenAI, ChatCompletion, ChatCompletionChunk, ChatCompletionRequest } from "./camelid.js";
