//! The `vllm-pingora` command.

fn main() {}
