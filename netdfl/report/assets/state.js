// What is shown stands in the address behind its #, so that a reload keeps it and a link can be sent.

/** The state as the address has it. @returns {URLSearchParams} */
export function state() {
  return new URLSearchParams(location.hash.slice(1));
}

/** Write some of the state; a value of "" or null takes its name away. @param {Object<string, string|number|null|undefined>} what */
export function keep(what) {
  const all = state();
  for (const [name, value] of Object.entries(what)) {
    if (value === "" || value === null || value === undefined) all.delete(name);
    else all.set(name, String(value));
  }
  const text = all.toString();
  if (text !== location.hash.slice(1)) history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
}

/** One of `values` by the state, or the first. @param {string} name @param {string[]} values @returns {string} */
export function oneOf(name, values) {
  const found = state().get(name) ?? "";
  return values.includes(found) ? found : values[0];
}
