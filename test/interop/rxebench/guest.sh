#!/bin/sh
# The machine's part of a run, pushed into it as /bench/guest.sh:
#
#   use rxe|softnicd ADDRESS ACK-FLOOR       make that the one that has the network; only one can have UDP port 4791
#   serve PORT PROGRAM OPTIONS               say "listening" as soon as the program does
#   call PORT ADDRESS PROGRAM OPTIONS        the client of a program that another machine serves
#   both PORT ADDRESS PROGRAM OPTIONS        the server and its client in this machine
#
# Lines that begin with @ticks have what the processors have done until then: the first line of /proc/stat, and the user and
# system time of the daemon behind it.

export SOFTNICD_SOCKET=/run/softnicd.sock SOFTNICD_LIBS=/bench/libs
pidfile=/run/softnicd.pid

softnicd_stop() {
	[ -e $pidfile ] || return 0
	kill "$(cat $pidfile)" 2>/dev/null
	while [ -e "/proc/$(cat $pidfile)" ]; do sleep 0.05; done
	rm -f $pidfile $SOFTNICD_SOCKET
}

softnicd_start() {
	/bench/softnicd run --device="softnic0=$1" --ack-floor="$2" --log-level=warn </dev/null >/run/softnicd.log 2>&1 &
	echo $! >$pidfile
	until [ -S $SOFTNICD_SOCKET ]; do
		[ -e "/proc/$(cat $pidfile)" ] || { cat /run/softnicd.log; exit 1; }
		sleep 0.05
	done
}

rxe_stop() {
	rdma link delete rxe0 2>/dev/null
	tries=0
	while grep -q '^rdma_rxe ' /proc/modules; do
		modprobe -r rdma_rxe 2>/dev/null && break
		tries=$((tries + 1))
		[ $tries -lt 100 ] || { echo "rdma_rxe stays in use"; exit 1; }
		sleep 0.1
	done
}

rxe_start() {
	modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0 || exit 1
	# The addresses become GIDs a moment later.
	until grep -qi ":ffff:" /sys/class/infiniband/rxe0/ports/1/gids/1 2>/dev/null; do sleep 0.05; done
}

ticks() {
	daemon="0 0"
	[ -e $pidfile ] && daemon=$(cut -d' ' -f14,15 "/proc/$(cat $pidfile)/stat")
	echo "@ticks $(head -n 1 /proc/stat) $daemon"
}

# run PROGRAM OPTIONS: over what has the network.
run() {
	if [ -e $pidfile ]; then
		program=$1
		shift
		/bench/softnicd exec -- "$program" -d softnic0 -x 0 -F "$@"
	else
		program=$1
		shift
		"$program" -d rxe0 -x 1 -F "$@"
	fi
}

# serving PORT PROGRAM OPTIONS: starts the server, whose number $! is then, and waits until it listens.
serving() {
	port=$1
	shift
	run "$@" -p "$port" >/run/server.out 2>&1 &
	server=$!
	until grep -q ":$(printf %04X "$port") .* 0A " /proc/net/tcp /proc/net/tcp6; do
		[ -e /proc/$server ] || { cat /run/server.out; exit 1; }
		sleep 0.05
	done
}

verb=$1
shift
case $verb in
use)
	if [ "$1" = rxe ]; then
		softnicd_stop
		[ -e /sys/class/infiniband/rxe0 ] || rxe_start
	else
		rxe_stop
		[ -e $pidfile ] || softnicd_start "$2" "$3"
	fi
	;;
serve)
	serving "$@"
	echo listening
	ticks
	wait $server
	status=$?
	ticks
	[ $status = 0 ] || cat /run/server.out
	exit $status
	;;
call)
	port=$1 address=$2
	shift 2
	ticks
	run "$@" -p "$port" "$address" 2>&1
	status=$?
	ticks
	exit $status
	;;
both)
	port=$1 address=$2
	shift 2
	serving "$port" "$@"
	ticks
	run "$@" -p "$port" "$address" 2>&1
	status=$?
	ticks
	[ $status = 0 ] || { kill $server; cat /run/server.out; }
	wait $server
	exit $status
	;;
esac
