#!/bin/sh
# A worker with curl and jq for the tasks of work_queue.py: sh worker_curl.sh http://127.0.0.1:7378 Ann 2
space=$1/v1/spaces/main
while :; do
  job=$(curl -sf "$space/groups/workers/take" --json '{"pattern": "task($id, $a, $b)", "start": "held", "ack_within": 5}') || sleep 1
  turn=$(echo "$job" | jq --arg me "$2" '.jobs[] | {owner: "results", done: {workers: [.delivery]},
    actions: [{assert: {"@": "done", fields: [.captures.id, .captures.a * .captures.b, $me]}}]}')
  [ "$turn" ] || continue
  echo doing
  sleep "$3" # the work, in which the process may be killed or stopped
  curl -sf "$space/turns" --json "$turn" >/dev/null || echo "not mine"
done
