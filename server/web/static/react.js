/** Hooks for React, without a dependency on it: `const { useLive } = hooks(React)`. */

const NOTHING = Object.freeze([]);
const constantly = (value) => () => value;
const EMPTY = { subscribe: () => () => {}, read: constantly({ rows: NOTHING, error: null }), close: () => {} };

/**
 * Returns the hooks, made of a program's own React (18 or later).
 *
 * `useLive(space, pattern, by, options)` returns the rows of a live map, a frozen list that is another one after each
 * change: `[]` while `space` is null, and before the first state. It observes for as long as the component is mounted,
 * and anew when the space, the pattern (as text), `by` or an option changes; another `sort` only sorts anew. An error of
 * the observation is thrown to the nearest error boundary, and so is a key with several rows, unless `many` is true.
 */
export function hooks({ useEffect, useMemo, useState, useSyncExternalStore }) {
  function useLive(space, pattern, by, options = {}) {
    const { sort, ...observing } = options;
    const [store, setStore] = useState(EMPTY);
    useEffect(() => {
      if (!space) return undefined;
      const made = storeOf(space, pattern, by, observing);
      setStore(made);
      return () => {
        made.close();
        setStore(EMPTY);
      };
    }, [space, JSON.stringify([pattern, by, observing])]);
    const { rows, error } = useSyncExternalStore(store.subscribe, store.read, EMPTY.read);
    const sorted = useMemo(() => (sort ? Object.freeze([...rows].sort(sort)) : rows), [rows, sort]);
    if (error) throw error;
    return sorted;
  }
  return { useLive };
}

/** Returns what React needs of a live map, or of the error that there is in its place. */
function storeOf(space, pattern, by, options) {
  let map;
  try {
    map = space.live(pattern, by, options);
  } catch (error) {
    return { ...EMPTY, read: constantly({ rows: NOTHING, error }) };
  }
  let shown = EMPTY.read();
  return {
    subscribe: (call) => map.subscribe(call),
    read: () => {
      const now = shownOf(map);
      if (shown.rows !== now.rows || shown.error?.message !== now.error?.message) shown = now;
      return shown;
    },
    close: () => map.close(),
  };
}

/** Returns the rows of a map, and what is to be thrown instead. */
function shownOf(map) {
  try {
    return { rows: map.snapshot, error: map.error?.name === "Closed" ? null : map.error };
  } catch (error) {
    return { rows: NOTHING, error };
  }
}
