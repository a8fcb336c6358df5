#!/usr/bin/env bash
# The router against real vLLM servers: answers, errors, full queues, frozen and killed engines.
#
#   tests/vllm/run.sh                     two engines from the `vllm` on PATH
#   VLLM_START=COMMAND tests/vllm/run.sh  two engines, each by COMMAND PORT [vllm serve options]
#   VLLM_URLS=URL[,URL] tests/vllm/run.sh engines that run already: nothing is killed, less is checked
#
# One line per check: ok, FAIL or skip, and the figures seen. The exit status is 1 after any FAIL.
# What engines and routers said is kept in target/vllm-acceptance/logs until the next run.
# Everything listens on 127.0.0.1; all processes that were started are ended, by their ids.
#
# Needed: Linux, Python 3.9 or later, a network to install the `openai` client once, and a model with
# a chat template and 2048 tokens of context. The smaller the model the better: the checks are about
# what goes on between engine and client. Three engines are started in all, two at a time.
#
#   VLLM_START    default tests/vllm/engine.sh, for which VLLM_MODEL is the name or the directory of
#                 a model (HuggingFaceTB/SmolLM2-135M-Instruct). COMMAND must become the API server
#                 itself, by `exec`, and pass on its options: --max-num-seqs, --max-num-queued-reqs.
#   ROUTER        the router to test; by default it is built from here, for release
#   VLLM_LIMIT_S  seconds after which the run is given up (1800)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
venv=$target/vllm-acceptance/venv
logs=$target/vllm-acceptance/logs

if [ -z "${ROUTER:-}" ]; then
  cargo build --release --locked --manifest-path "$root/Cargo.toml"
  ROUTER=$target/release/vllm-pingora
fi
if ! "$venv/bin/python" -c 'import openai' 2>/dev/null; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q openai
fi
rm -rf "$logs"
mkdir -p "$logs"
export ROUTER LOGS=$logs VLLM_START=${VLLM_START:-$here/engine.sh}
export PYTHONDONTWRITEBYTECODE=1
# The process of the checks takes this one's place, so that a signal to it cleans up.
exec "$venv/bin/python" "$here/acceptance.py"
