#!/usr/bin/env bash
# engine.sh PORT [vllm serve options]: one vLLM server on 127.0.0.1:PORT, from the `vllm` on PATH.
# The process started is the API server itself, so that its id is the one to kill.
set -eu
port=${1:?usage: engine.sh PORT [vllm serve options]}
shift
exec vllm serve "${VLLM_MODEL:-HuggingFaceTB/SmolLM2-135M-Instruct}" --host 127.0.0.1 --port "$port" \
  --max-model-len 2048 "$@"
