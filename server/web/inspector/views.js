/** The views, in the order of their tabs. */

import commands from "./views/console.js";
import facts from "./views/facts.js";
import overview from "./views/overview.js";

export const VIEWS = [overview, facts, commands];
