// The one class of errors that this client throws.

/**
 * An error of Camelid. `name` is the class in Python: RequestError, ContextOverflowError, ModelFormatError,
 * UnsupportedModelError, OutOfMemoryError, BackendError, DeviceLostError... `message` states the fault, what
 * was expected and the way out; `facts` has the same as fields, such as {field: "temperature"}.
 */
export class CamelidError extends Error {
  /**
   * @param {{name: string, message: string, facts?: Record<string, unknown>, detail?: string}} record
   */
  constructor({ name, message, facts = {}, detail }) {
    super(message);
    this.name = name;
    this.facts = facts;
    if (detail) this.detail = detail; // Python's traceback: a defect of Camelid
  }
}

/**
 * The error of a wrong argument.
 * @param {string} field
 * @param {string} message
 */
export function requestError(field, message) {
  return new CamelidError({ name: "RequestError", message, facts: { field } });
}
