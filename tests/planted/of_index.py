"""Defects in the index: counts of equal values and captures, values that wait for a pattern, the net."""

from __future__ import annotations

from typing import Final

from tests.planted.planting import Rows

ROWS: Final[Rows] = {
    "index.trie.trie": [
        ("fact-replaces-itself", "Index.replace", "at == gone", "False"),
        ("second-claim-replaced", "Index.replace", "gone not in self._copies", "True"),
    ],
    "index.trie.contents": [
        ("copies-counted-up", "Contents.recount", "self.copies[at] = copies - 1", "self.copies[at] = copies"),
        ("copies-balanced-once", "Contents._balance", "after[at] += 1", "after[at] = self.count(at) + 1"),
        (
            "copies-never-forgotten",
            "Contents.reset",
            "self.copies.update({at: count - 1 for at, count in counts.items() if count > 1})",
            "self.copies.update({at: count - 1 for at, count in counts.items()})",
        ),
        ("groups-keep-what-was-undone", "Contents.reset", "group.reset(node.values)", "pass"),
        ("nets-keep-what-was-undone", "Contents.reset", "net.reset(self.values)", "pass"),
        ("messages-pass-by-nets", "Contents.collect", "groups += self.tree.beside(value)", "pass"),
    ],
    "index.trie.nodes": [
        (
            "captures-counted-once",
            "Handler.again",
            "self.more[at] = self.more.get(at, 0) + 1",
            "self.more[at] = 1",
        ),
        ("captures-go-at-once", "Handler.less", "self.more[at] = more - 1", "del self.more[at]"),
        ("values-lost-with-a-leaf", "Group.close", "self.idle[place] = values", "pass"),
        ("idle-value-displaces-another", "Group.rest", "isinstance(resting, dict)", "False"),
        ("idle-values-go-together", "Group.rouse", "if resting:\n    return", "pass"),
        ("leaf-begins-empty", "Group.open", "self.held(place, values) or {}", "{}"),
    ],
    "index.trie.tree": [
        ("pattern-takes-its-neighbours", "Tree.prune", "if leaf.handlers:\n    return", "pass"),
        ("label-of-any-structure", "reached", "by >= len(fields)", "by > len(fields)"),
        ("net-begins-empty", "Tree._open_beside", "place_of(value) == place", "False"),
        ("net-takes-its-neighbours", "Tree._prune_beside", "leaf is None or not leaf.handlers", "True"),
    ],
    "index.trie.net": [
        ("net-keeps-its-guard", "Branch.admit", "del self.guard[question]", "pass"),
        (
            "net-gathers-all-but-one",
            "_gather",
            "for each in waiting[1:]:\n"
            "    for entry in each.entries:\n"
            "        branch.entries[entry] = None\n"
            "        entry.branch = branch",
            "for each in waiting[2:]:\n"
            "    for entry in each.entries:\n"
            "        branch.entries[entry] = None\n"
            "        entry.branch = branch",
        ),
        (
            "net-moves-what-has-no-answer",
            "_move",
            "required is None or question not in required",
            "required is None",
        ),
        ("net-gathers-and-forgets", "_gather", "branch.regroup()", "pass"),
        ("net-answers-for-others", "_passes", "answer != required", "answer == required"),
    ],
}
