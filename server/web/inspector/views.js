/** The views, in the order of their tabs. */

import commands from "./views/console.js";
import facts from "./views/facts.js";
import overview from "./views/overview.js";
import interest from "./views/interest.js";
import rules from "./views/rules.js";
import topics from "./views/topics.js";
import actors from "./views/actors.js";
import cluster from "./views/cluster.js";
import sessions from "./views/sessions.js";

export const VIEWS = [overview, facts, interest, rules, topics, actors, sessions, cluster, commands];
