#!/usr/bin/env bash
# Shows what retries do: two simulated engines that misbehave, the router in front of them, and
# clients that do not notice.
#
# Usage: tests/demo.sh PATH_OF_VLLM_PINGORA. Needs bash and nothing else; the system chooses every
# port; everything it starts has ended when it ends. Exit status 0 means that every request got its
# own answer.
set -euo pipefail
cd "$(dirname "$0")/.."

binary=${1:?usage: tests/demo.sh PATH_OF_VLLM_PINGORA}
model=facebook/opt-125m
patience=20 # seconds until whatever does not answer is given up

work=$(mktemp -d)
pids=()

finish() {
  local pid
  for pid in ${pids[@]+"${pids[@]}"}; do kill "$pid" 2>/dev/null || true; done
  for pid in ${pids[@]+"${pids[@]}"}; do wait "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

fail() {
  echo "demo: $*" >&2
  exit 1
}

# start_engine NAME SCRIPT: a simulated engine on a free port. Sets `address`.
start_engine() {
  local line
  mkfifo "$work/$1"
  RUST_LOG=off "$binary" simulate --port 0 --model "$model" --tokens 6 --script "$2" >"$work/$1" &
  pids+=("$!")
  read -r -t "$patience" line <"$work/$1" || fail "engine $1 did not start"
  address=${line#listening on }
  echo "  engine $1   http://$address   $2"
}

# start_router URL,URL: the router on free ports. Sets `public` and `admin`; its log is fd 3.
start_router() {
  local line
  mkfifo "$work/router"
  "$binary" -c conf/demo.yaml --host 127.0.0.1 --port 0 --admin-port 0 --log-level info \
    --log-format text --grace-period-ms 1000 --static-backends "$1" \
    --static-models "$model,$model" 2>"$work/router" &
  pids+=("$!")
  exec 3<"$work/router"
  while read -r -t "$patience" -u 3 line; do
    case $line in *" listening on "*) break ;; esac
    echo "$line" >&2
  done
  case ${line-} in *" listening on "*) ;; *) fail "the router did not start" ;; esac
  line=${line#*listening on }
  public=${line%%,*}
  line=${line#*admin on }
  admin=${line%%,*}
  echo "  router     http://$public   admin http://$admin"
}

# http ADDRESS METHOD PATH ID BODY: one request over HTTP/1.0, whose answer ends with the
# connection. Sets `head` and `body`.
http() {
  local line
  head='' body=''
  exec 4<>"/dev/tcp/${1%:*}/${1##*:}"
  printf '%s %s HTTP/1.0\r\nHost: %s\r\nX-Request-Id: %s\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' \
    "$2" "$3" "$1" "$4" "${#5}" "$5" >&4
  while IFS= read -r -t "$patience" -u 4 line; do
    line=${line%$'\r'}
    [ -n "$line" ] || break
    head+=$line$'\n'
  done
  while IFS= read -r -t "$patience" -u 4 line || [ -n "$line" ]; do
    body+=$line$'\n'
    line=
  done
  exec 4>&-
}

# The field NAME of `head`.
field() {
  local line
  while IFS= read -r line; do
    case $line in [Xx]-*"$1: "*) echo "${line#*: }" ;; esac
  done <<<"$head"
}

# The text of the answer in `body`, a whole one or a stream's events.
content() {
  local rest=$body text='' pattern='"content":"([^"]*)"'
  while [[ $rest =~ $pattern ]]; do
    text+=${BASH_REMATCH[1]}
    rest=${rest#*"${BASH_REMATCH[0]}"}
  done
  echo "$text"
}

# echo_of TEXT: how a simulated engine begins its answer, the 64-bit FNV-1a hash of the prompt.
echo_of() {
  local hash=$((0xcbf29ce484222325)) at byte
  for ((at = 0; at < ${#1}; at++)); do
    printf -v byte '%d' "'${1:at:1}"
    hash=$(((hash ^ byte) * 0x100000001b3))
  done
  printf 'echo-%016x' "$hash"
}

# access_line ID: the fields of the router's log line on this request. Sets `line`.
access_line() {
  while read -r -t "$patience" -u 3 line; do
    case $line in *" id=$1 "*) return ;; esac
  done
  fail "request $1 is not in the router's log"
}

# value NAME: a field of `line`.
value() {
  local rest=${line#* "$1"=}
  echo "${rest%% *}"
}

# story: the attempts of `line`, engines by their names, times left out.
story() {
  local attempts told='' each
  attempts=$(value attempts)
  attempts=${attempts//http:\/\/$engine_a/A}
  attempts=${attempts//http:\/\/$engine_b/B}
  for each in ${attempts//,/ }; do
    told+=${told:+, }${each%:*}
  done
  echo "$told"
}

requests=0 failures=0

# ask KIND: one request, checked and told.
ask() {
  local id prompt verdict status attempts stream=false line
  requests=$((requests + 1))
  id=demo-$requests
  [ "$1" = whole ] || stream=true
  prompt="[{\"role\":\"user\",\"content\":\"request $requests of the demo\"}]"
  http "$public" POST /v1/chat/completions "$id" \
    "{\"model\":\"$model\",\"stream\":$stream,\"messages\":$prompt}"
  status=${head#* } status=${status%% *}
  attempts=$(field vllm-pingora-attempts)
  verdict=ok
  case $(content) in "$(echo_of "$prompt")"*) ;; *) verdict='WRONG ANSWER' ;; esac
  [ "$stream" = false ] || case $body in *'data: [DONE]'*) ;; *) verdict='BROKEN STREAM' ;; esac
  [ "$status" = 200 ] || verdict="FAILED, status ${status:-none}"
  [ "$verdict" = ok ] || failures=$((failures + 1))
  access_line "$id"
  printf '  %-8s %-7s %-8s %-7s %s ms\n           %s\n' \
    "$id" "$1" "${attempts:-?}" "$verdict" "$(value total_ms)" "$(story)"
}

echo 'Starting two simulated engines that misbehave in turn, and the router with conf/demo.yaml:'
start_engine A 503,503,200,200,first-event-error,200
engine_a=$address
start_engine B reset-before-head,200,close-after-head,200
engine_b=$address
start_router "http://$engine_a,http://$engine_b"

deadline=$((SECONDS + patience))
until http "$admin" GET /ready demo-ready '' && [[ $head == *' 200 '* ]]; do
  [ "$SECONDS" -lt "$deadline" ] || fail "the router is not ready: $body"
  sleep 0.1
done

echo
echo 'Asking, one request after the other. Each attempt is engine:outcome, with the status if there was one:'
echo '  request  answer  attempts client  time'
for kind in whole stream whole stream stream whole stream whole; do ask "$kind"; done

echo
echo "What the router counted (http://$admin/metrics):"
http "$admin" GET /metrics demo-metrics ''
while IFS= read -r line; do
  case $line in
  vllm_pingora_requests_total* | vllm_pingora_attempts_total* | vllm_pingora_retries_total* | \
    vllm_pingora_stale_connections_total* | vllm_pingora_backoff_seconds_count* | \
    vllm_pingora_backoff_seconds_sum*)
    line=${line//http:\/\/$engine_a/A}
    echo "  ${line//http:\/\/$engine_b/B}"
    ;;
  esac
done <<<"$body"

echo
if [ "$failures" = 0 ]; then
  echo "All $requests clients got their own answer, with status 200. Everything is stopped again."
else
  echo "$failures of $requests requests failed. Everything is stopped again."
fi
cat <<END

To go on by hand, in four terminals:
  $binary simulate --port 9001 --model $model --script 503,503,200
  $binary simulate --port 9002 --model $model --script reset-before-head,200
  $binary -c conf/demo.yaml
  curl -i http://127.0.0.1:8001/v1/chat/completions -H 'content-type: application/json' \\
    -d '{"model":"$model","messages":[{"role":"user","content":"hello"}]}'
The admin port is 127.0.0.1:9901: /metrics, /engines, /ready, /config. Change an engine while it runs:
  curl http://127.0.0.1:9001/sim -d '{"script":"first-event-error,200"}'
END
[ "$failures" = 0 ]
