"""What ``help`` says at the prompt: each command with an example, in the order in which one learns them."""

from __future__ import annotations

from typing import Final

HELP: Final = """\
Look
  get task($n, $state)                   what matches now; $name captures, _ is anything
  query task($n, "open"), $n > 1         joins facts by the body of a rule
  observe task($n, _)                    what matches, then each change, until Ctrl-C
  observe task($n, _) &                  the same in the background: changes come before a prompt
  unobserve                              ends what runs in the background
  log task($n, _) --from 1               the changes of past epochs
Change
  assert task(1, "open")                 a fact of this shell: it lasts until the shell ends
  assert task(1, "open") --owner board   a fact of a durable owner: it lasts until it is retracted
  retract task(_, "open")                facts of this shell, or with --owner NAME of that owner
  put rate(7) --owner board              a fact in place of the one with the same key
  send say("hi")                         a message, which does not last
Understand
  why waiting(1)                         a proof of a derived fact
  why-not waiting(2)                     what is missing for it
  owners task(1, _)                      who asserts it
  status, sessions, index                what the daemon says of itself
Here
  --json, --csv after get and query; --as-of EPOCH or TIME; help COMMAND has every option
  Tab completes commands, options and labels in use; Ctrl-C ends a command, Ctrl-D the shell
"""

ALONE: Final = {
    "help": "help [COMMAND]: what there is, or the options of one command",
    "unobserve": "unobserve [NUMBER]: ends one observation in the background, or all of them",
    "exit": "exit: ends the shell, as Ctrl-D does; its facts are retracted",
}
"""Commands that only the shell has."""
