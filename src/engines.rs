//! The engines behind the router.

/// Names one engine for the life of the process; never given to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EngineId(u32);

impl EngineId {
    /// The engine with this number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }
}
