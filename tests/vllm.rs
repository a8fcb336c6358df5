//! The router against real vLLM servers: the checks of `tests/vllm/`.
//!
//! Two engines are started, one again, by a command called as `COMMAND PORT [vllm serve options]`:
//!
//! ```sh
//! VLLM_START=tests/vllm/engine.sh cargo test --test vllm -- --ignored --nocapture
//! ```
//!
//! Or engines that run already are asked, and left alone otherwise:
//!
//! ```sh
//! VLLM_URLS=http://127.0.0.1:8000,http://127.0.0.1:8010 cargo test --test vllm -- --ignored --nocapture
//! ```
//!
//! `tests/vllm/run.sh` says what is needed and which other variables there are; it can be run by
//! itself, too.

use std::process::Command;

#[test]
#[ignore = "needs a real vLLM: set VLLM_START or VLLM_URLS, see tests/vllm/"]
fn the_router_keeps_its_promises_in_front_of_real_engines() {
    let status = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vllm/run.sh"))
        .env("ROUTER", env!("CARGO_BIN_EXE_vllm-pingora"))
        .status();
    assert!(
        status.as_ref().is_ok_and(std::process::ExitStatus::success),
        "a check failed, or could not be run: {status:?}"
    );
}
