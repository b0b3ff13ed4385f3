"""A blackboard for agents: rules say what is wanted next, and an agent with that skill contributes it.

python blackboard.py ask 1 "Why is the sky blue?"
python blackboard.py agent ada draft 2      # drafts; her task is open again 2 s after she was killed
python blackboard.py agent bob review 2
"""

import sys

import trio

import dataspace
from dataspace import Record, Refused, exactly

RULES = """wanted($q, "draft", $text) <- question($q, $text), not note($q, "draft", _, _).
wanted($q, "review", $text) <- note($q, "draft", _, $text), not note($q, "review", _, _).
open($q, $skill, $text) <- wanted($q, $skill, $text), not busy($q, $skill, _)."""


async def ask(number: str, text: str) -> None:
    async with dataspace.connect(owner="board", client="~ask") as space, space.turn() as turn:
        turn.assert_(Record("rule", "what is wanted", RULES))
        turn.assert_(Record("question", int(number), text))


async def agent(me: str, skill: str, seconds: str) -> None:
    async with (
        dataspace.connect(name=me, lease=float(seconds), reassert=False) as mine,
        dataspace.connect(owner="board", client=f"~{me}") as board,
        mine.observe(f'open($q, "{skill}", $text)', policy="wait") as wanted,
    ):
        async for each in wanted:
            try:
                async with mine.turn(expect=[exactly(f'open({each.q}, "{skill}", _)', [()])]) as turn:
                    claim = turn.assert_(Record("busy", each.q, skill, me))
                print("busy", each.q, flush=True)
                await trio.sleep(0.2)  # the agent thinks, and may be killed or stopped
                async with board.turn(expect=[exactly(f'busy({each.q}, "{skill}", "{me}")', [()])]) as turn:
                    turn.assert_(Record("note", each.q, skill, me, f"{skill} of {each.text}"))
                await mine.retract(claim)
            except Refused:  # another agent has it, or it was lost meanwhile
                print("not mine", each.q, flush=True)


if __name__ == "__main__":
    trio.run({"ask": ask, "agent": agent}[sys.argv[1]], *sys.argv[2:])
