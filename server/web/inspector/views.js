/** The views, in the order of their tabs. */

import overview from "./views/overview.js";

export const VIEWS = [overview];
