/** Types of the hooks for React; `hooks(React)` makes them of a program's own React, 18 or later. */

import type { LiveManyOptions, LiveOptions, LiveRow, Space } from "./dataspace.js";

/** What is used of React. */
export interface ReactLike {
  useEffect(effect: () => void | (() => void), dependencies?: readonly unknown[]): void;
  useMemo<T>(make: () => T, dependencies: readonly unknown[]): T;
  useState<T>(initial: T): [T, (value: T) => void];
  useSyncExternalStore<T>(subscribe: (call: () => void) => () => void, read: () => T, readOnServer?: () => T): T;
}

export interface Hooks {
  /** The rows of a live map; a frozen list, which is another one after each change. */
  useLive<R extends LiveRow = LiveRow>(
    space: Space | null | undefined,
    pattern: string,
    by: string | readonly string[],
    options?: LiveOptions<R>,
  ): readonly R[];
  /** With `many` the rows of each key as a list, oldest first. */
  useLive<R extends LiveRow = LiveRow>(
    space: Space | null | undefined,
    pattern: string,
    by: string | readonly string[],
    options: LiveManyOptions<R>,
  ): readonly (readonly R[])[];
}

export function hooks(react: ReactLike): Hooks;
