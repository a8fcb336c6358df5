//! The simulated engine as its clients see it: raw sockets, exact bytes.

#[cfg(test)]
mod simulator {
    mod answers;
    mod client;
    mod connections;
    mod control;
    mod faults;
    mod limits;
    mod state;
}
