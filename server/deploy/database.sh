#!/bin/sh
# A database of compose.cluster.yaml: the primary, or its synchronous standby.
#
#     database.sh           starts it. Without data it becomes a copy of PEER, if that can be written;
#                           else a new database, if it is the FIRST, and waits for PEER if it is not.
#     database.sh promote   has this standby take the place of the primary, which must have been stopped.
#
# Always: a database whose PEER has taken its place does not start; a primary commits nothing without its standby
# from the first copy on, so one that was cut off and succeeded acknowledges nothing.
set -eu
export PGUSER="$POSTGRES_USER" PGPASSWORD="$POSTGRES_PASSWORD" PGCONNECT_TIMEOUT=2
export PGDATABASE="${POSTGRES_DB:-$POSTGRES_USER}"

peer_can_be_written() {
    [ "$(psql -h "$PEER" -Atc 'SELECT pg_is_in_recovery()' 2>/dev/null)" = f ]
}

if [ "${1:-}" = promote ]; then
    # It has no standby of its own yet, and would wait for one.
    psql -qc "ALTER SYSTEM RESET synchronous_standby_names" -c "SELECT pg_promote()" >/dev/null
    exec psql -qAtc "SELECT pg_reload_conf()" -o /dev/null
fi

if [ ! -s "$PGDATA/PG_VERSION" ]; then
    tries=0
    until peer_can_be_written || { [ -n "${FIRST:-}" ] && [ "$tries" -ge 5 ]; }; do
        tries=$((tries + 1))
        sleep 1
    done
    if peer_can_be_written; then
        find "$PGDATA" -mindepth 1 -delete # what an interrupted copy has left
        # Writes standby.signal, and how to follow the primary.
        pg_basebackup -D "$PGDATA/copy" -d "host=$PEER application_name=$NAME" -R -X stream -c fast
        psql -qh "$PEER" -c "ALTER SYSTEM SET synchronous_standby_names = '\"$NAME\"'" -c "SELECT pg_reload_conf()" >/dev/null
        find "$PGDATA/copy" -mindepth 1 -maxdepth 1 ! -name PG_VERSION -exec mv {} "$PGDATA" ';'
        mv "$PGDATA/copy/PG_VERSION" "$PGDATA" # the last one: now it is whole
        rmdir "$PGDATA/copy"
    fi
elif [ ! -e "$PGDATA/standby.signal" ] && peer_can_be_written; then
    echo "$PEER has taken the place of this database: delete its data, then it becomes a standby" >&2
    exit 1
fi

exec docker-entrypoint.sh postgres -c "cluster_name=$NAME" -c "hba_file=$HBA" -c wal_keep_size=1GB
