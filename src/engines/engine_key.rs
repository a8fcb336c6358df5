//! The key the router itself presents to engines.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

/// The `Authorization` of the router itself, which may change while it runs.
#[derive(Default)]
pub struct EngineKey(ArcSwapOption<String>);

impl EngineKey {
    /// Presents `key` from now on; `None` presents nothing.
    pub fn set(&self, key: Option<&str>) {
        self.0
            .store(key.map(|key| Arc::new(format!("Bearer {key}"))));
    }

    /// The whole value of the header.
    pub fn authorization(&self) -> Option<Arc<String>> {
        self.0.load_full()
    }
}

impl std::fmt::Debug for EngineKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineKey").finish_non_exhaustive()
    }
}
