// The requests that every driver makes, and its report: one JSON object on standard output.
import { z } from "zod";

export const URL = process.env.CAMELID_URL;
export const OPENAI_URL = `${URL}/v1`;
export const KEY = "a key that this server does not need";
export const MODEL = "cria";
export const UNKNOWN = "nope";
export const QUESTION = "What is 12 plus 30?";
export const WEATHER_QUESTION = "What is the weather in Oslo?"; // cria calls a tool on it unasked
export const MAX_TOKENS = 80;
export const MESSAGES = [{ role: "user", content: QUESTION }];
export const CITIES = ["Oslo", "Rome"];
export const CITY = {
  type: "object",
  properties: { city: { type: "string", enum: CITIES } },
  required: ["city"],
  additionalProperties: false,
};
export const Answer = z.object({ color: z.enum(["red", "green"]), city: z.enum(CITIES) });

export async function errorOf(call) {
  try {
    await call();
  } catch (error) {
    return error.constructor.name;
  }
  return "none";
}

export function report(found) {
  console.log(JSON.stringify(found));
}
