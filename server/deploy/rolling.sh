#!/bin/sh
# Restarts the daemons of a cluster one after the other, the leader last: how they get a new version.
#
#     rolling.sh RESTART NAME=URL NAME=URL NAME=URL
#
# RESTART is a command that gets a name: it ends that daemon by SIGTERM, and has it started in the new version, as
# `ssh NAME systemctl restart dataspace` does. Before that the daemon is drained, and it is resumed once it is back.
# $DATASPACE_TOKEN_FILE has a token with the rights to administer and to inspect.
#
# Always: the next daemon is drained once the one before leads, or follows and is up to date.
set -eu
restart=$1
shift

role() { printf '%s' "$said" | sed -n "s/^role  *//p"; }
run() { printf '%s' "$said" | sed -n "s/^process .*since //p"; }
ask() { said=$(dataspace status --wait 30s --url "$1" 2>/dev/null || true); }
is_back() { [ -n "$(run)" ] && [ "$(run)" != "$before" ] && case $(role) in *behind) false ;; esac; }

followers='' leaders=''
for each; do
    ask "${each#*=}"
    case $(role) in follows*) followers="$followers $each" ;; *) leaders="$leaders $each" ;; esac
done
for each in $followers $leaders; do
    name=${each%%=*} url=${each#*=}
    ask "$url"
    before=$(run) tries=0
    dataspace cluster drain "$name" --url "$url" >/dev/null
    $restart "$name"
    until ask "$url" && is_back; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || { echo "$name is not back, and stays drained" >&2; exit 1; }
        sleep 0.1
    done
    dataspace cluster resume "$name" --url "$url" >/dev/null
    echo "$name is back"
done
