#!/bin/sh
# Operator commands, run on the server, the only place where Flower's Control API can be reached:
#   operator.sh register member-0.pub     register a member's key
#   operator.sh nodes                     members, their node ids and whether they are online
#   operator.sh unregister NODE_ID        remove a member
#   operator.sh run [ROUNDS]              start the rounds of the app
#   operator.sh resume                    continue after a crash
#   operator.sh list                      runs and their states
set -eu
FLWR_HOME=$(mktemp -d)
export FLWR_HOME
trap 'rm -rf "$FLWR_HOME"' EXIT
cat > "$FLWR_HOME/config.toml" <<END
[superlink]
default = "server"

[superlink.server]
address = "127.0.0.1:9091"
root-certificates = "@SECRETS@/ca.pem"
END
start() {
    cp -RL "@APP@" "$FLWR_HOME/app"
    # Kubernetes mounts a config map with hidden copies of its files; members run only the app that they agreed to.
    rm -rf "$FLWR_HOME/app"/..?*
    cat > "$FLWR_HOME/run.toml" <<END
state = "@STATE@/server"
registry = "@CONFIG@/registry.json"
resume = $1
rounds = $2
END
    flwr run "$FLWR_HOME/app" server --run-config "$FLWR_HOME/run.toml"
}
case "${1:-}" in
register) flwr supernode register "$2" server --name "$(basename "$2" .pub)" ;;
nodes) flwr supernode list server ;;
unregister) flwr supernode unregister "$2" server ;;
run) start false "${2:-0}" ;;
resume) start true 0 ;;
list) flwr list server ;;
*)
    echo "operator.sh register FILE | nodes | unregister NODE_ID | run [ROUNDS] | resume | list" >&2
    exit 2
    ;;
esac
